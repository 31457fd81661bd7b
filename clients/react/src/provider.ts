// One client for all components below: made when it is first rendered, closed when it is gone.

import { createContext, createElement, type ReactNode, useContext, useEffect, useMemo, useReducer, useRef } from "react";
import { connect, type ConnectOptions, type TurnoutClient } from "@turnout/client";

const Context = createContext<TurnoutClient | null>(null);
const closing = new WeakMap<TurnoutClient, ReturnType<typeof setTimeout>>();

/** As of `connect`: `url`, `token` and others. */
export interface TurnoutProviderProps extends ConnectOptions {
  children?: ReactNode;
}

/** One server, one connection. Another `url` makes another client; another token connects anew. */
export function TurnoutProvider({ children, ...options }: TurnoutProviderProps): ReactNode {
  return createElement(Context.Provider, { value: useClient(options) }, children);
}

/** The client itself, for calls that are answered once, such as `rows` or `topics`. */
export function useTurnout(): TurnoutClient {
  const client = useContext(Context);
  if (client === null) throw new Error("useTurnout: there is no <TurnoutProvider> above this component; put one around the application");
  return client;
}

function useClient({ url, token, client: name = "react", fetch, WebSocket }: ConnectOptions): TurnoutClient {
  // Where pages are rendered on a server there is no address, and nothing is subscribed: effects do not run there.
  const address = String(url ?? globalThis.location?.origin ?? "http://localhost");
  const given = useRef(token);
  const [times, renew] = useReducer((count: number) => count + 1, 0);
  const client = useMemo(() => {
    const newest = (): string | null | undefined | Promise<string | null | undefined> =>
      typeof given.current === "function" ? given.current() : given.current;
    return connect({ url: address, token: newest, client: name, fetch, WebSocket });
  }, [address, name, fetch, WebSocket, times]);

  useEffect(() => {
    // A function is asked each time anyway, and is mostly another one in each rendering.
    const anew = given.current !== token && (typeof given.current !== "function" || typeof token !== "function");
    given.current = token;
    if (anew && client.connection.state !== "idle") client.reconnect();
  }, [client, token]);
  useEffect(() => {
    // Strict mode and hidden parts of a page come back: at once, or later, when the client is closed.
    clearTimeout(closing.get(client));
    if (client.connection.state === "closed") renew();
    return () => void closing.set(client, setTimeout(() => client.close()));
  }, [client]);
  return client;
}
