// The provider of the client for an application.

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

/** The options of `connect`: `url`, `token` and others. A token function may call `inject`. */
export type TurnoutOptions = ConnectOptions;

/** Provide the client of one server. A function that returns the options may call `inject`. */
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
  // The address of the rendered request is not used, because its sender could redirect the token.
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

/** A socket for rendering on a server: it makes no connection, and subscriptions stay without data. */
class SilentSocket implements Socket {
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  send(): void {}
  close(): void {}
}
