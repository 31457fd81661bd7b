// The provider of one client for all components below it: created at the first rendering, closed after unmounting.

import { createContext, createElement, type ReactNode, useContext, useEffect, useMemo, useReducer, useRef } from "react";
import { connect, type ConnectOptions, type TurnoutClient } from "@turnout/client";

const Context = createContext<TurnoutClient | null>(null);
const closing = new WeakMap<TurnoutClient, ReturnType<typeof setTimeout>>();

/** The options of `connect`: `url`, `token` and others. */
export interface TurnoutProviderProps extends ConnectOptions {
  children?: ReactNode;
}

/** Provide the client of one server. A changed `url` creates another client; a changed token reconnects. */
export function TurnoutProvider({ children, ...options }: TurnoutProviderProps): ReactNode {
  return createElement(Context.Provider, { value: useClient(options) }, children);
}

/** Return the client, for single calls such as `rows` or `topics`. */
export function useTurnout(): TurnoutClient {
  const client = useContext(Context);
  if (client === null) throw new Error("useTurnout: there is no <TurnoutProvider> above this component; put one around the application");
  return client;
}

function useClient({ url, token, client: name = "react", fetch, WebSocket }: ConnectOptions): TurnoutClient {
  // Rendering on a server has no address and subscribes to nothing, because effects do not run there.
  const address = String(url ?? globalThis.location?.origin ?? "http://localhost");
  const given = useRef(token);
  const [times, renew] = useReducer((count: number) => count + 1, 0);
  const client = useMemo(() => {
    const newest = (): string | null | undefined | Promise<string | null | undefined> =>
      typeof given.current === "function" ? given.current() : given.current;
    return connect({ url: address, token: newest, client: name, fetch, WebSocket });
  }, [address, name, fetch, WebSocket, times]);

  useEffect(() => {
    // A token function is called for each connection anyway, and is mostly another object in each rendering.
    const anew = given.current !== token && (typeof given.current !== "function" || typeof token !== "function");
    given.current = token;
    if (anew && client.connection.state !== "idle") client.reconnect();
  }, [client, token]);
  useEffect(() => {
    // Strict mode and hidden parts of a page mount again, at once or after the client was closed.
    clearTimeout(closing.get(client));
    if (client.connection.state === "closed") renew();
    return () => void closing.set(client, setTimeout(() => client.close()));
  }, [client]);
  return client;
}
