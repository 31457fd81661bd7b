// What an application gives its injector: where the server is, and who asks.

import { isPlatformBrowser } from "@angular/common";
import {
  DestroyRef,
  EnvironmentInjector,
  type EnvironmentProviders,
  inject,
  makeEnvironmentProviders,
  PLATFORM_ID,
  runInInjectionContext,
} from "@angular/core";
import { connect, type ConnectOptions, type Socket, TurnoutClient } from "@turnout/client";
import { TurnoutSwap } from "./swap";
import { Turnout } from "./turnout";

/** As of `connect`: `url`, `token` and others. A function for the token may call `inject`. */
export type TurnoutOptions = ConnectOptions;

/** One server, one connection. A function for the options may call `inject`. */
export function provideTurnout(options: TurnoutOptions | (() => TurnoutOptions) = {}): EnvironmentProviders {
  return makeEnvironmentProviders([
    { provide: TurnoutClient, useFactory: () => makeClient(typeof options === "function" ? options() : options) },
    Turnout,
    TurnoutSwap,
  ]);
}

function makeClient(options: TurnoutOptions): TurnoutClient {
  const injector = inject(EnvironmentInjector);
  const { token } = options;
  // The address of a request is not taken: whoever makes it could say where the token goes.
  const onServer = { url: options.url ?? "http://localhost", WebSocket: SilentSocket };
  const client = connect({
    client: "angular",
    ...options,
    token: typeof token === "function" ? () => runInInjectionContext(injector, token) : token,
    ...(isPlatformBrowser(inject(PLATFORM_ID)) ? {} : onServer),
  });
  inject(DestroyRef).onDestroy(() => client.close());
  return client;
}

/** Where pages are rendered on a server nobody watches: whatever is subscribed there waits, and no connection is made. */
class SilentSocket implements Socket {
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  send(): void {}
  close(): void {}
}
