// Status and connection: all components share one subscription of each client.

import { useSyncExternalStore } from "react";
import type { Status, TurnoutClient } from "@turnout/client";
import { nextConnection, type TurnoutConnection } from "@turnout/client/frameworks";
import { useTurnout } from "./provider.js";

/** Return the status, updated about once a second; null before the first arrives. */
export function useStatus(): Status | null;
/** Return a part of the status, such as `(status) => status?.generation`; only its changes cause a rendering. */
export function useStatus<Part>(select: (status: Status | null) => Part): Part;
export function useStatus(select: (status: Status | null) => unknown = (status) => status): unknown {
  const feed = feedsOf(useTurnout()).status;
  const current = (): unknown => select(feed.current());
  return useSyncExternalStore(feed.subscribe, current, current);
}

/** Return the state of the connection. */
export function useConnection(): TurnoutConnection {
  const feed = feedsOf(useTurnout()).connection;
  return useSyncExternalStore(feed.subscribe, feed.current, feed.current);
}

/** An external value, updated while there are listeners. An equal value is the same object as before. */
class Feed<Value> {
  private readonly listeners = new Set<() => void>();
  private readonly start: (give: (next: (before: Value) => Value) => void) => () => void;
  private value: Value;
  private end: (() => void) | null = null;

  constructor(first: Value, start: (give: (next: (before: Value) => Value) => void) => () => void) {
    this.value = first;
    this.start = start;
  }

  readonly current = (): Value => this.value;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    if (this.listeners.size === 1) this.end = this.start((next) => this.give(next(this.value)));
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) this.end?.();
    };
  };

  private give(next: Value): void {
    if (JSON.stringify(next) === JSON.stringify(this.value)) return;
    this.value = next;
    for (const listener of [...this.listeners]) listener();
  }
}

interface Feeds {
  readonly status: Feed<Status | null>;
  readonly connection: Feed<TurnoutConnection>;
}

const feeds = new WeakMap<TurnoutClient, Feeds>();

function feedsOf(client: TurnoutClient): Feeds {
  const known = feeds.get(client) ?? makeFeeds(client);
  feeds.set(client, known);
  return known;
}

function makeFeeds(client: TurnoutClient): Feeds {
  const status = new Feed<Status | null>(null, (give) => {
    // A closed client is about to be replaced; its components are then rendered with the new client.
    return client.connection.state === "closed" ? () => undefined : client.onStatus((now) => give(() => now));
  });
  const connection = new Feed<TurnoutConnection>({ state: "connecting" }, (give) => {
    // The status subscription opens the connection, and detects a dead one.
    const ends = [client.onConnection((now) => give((before) => nextConnection(before, now))), status.subscribe(() => undefined)];
    return () => ends.forEach((end) => end());
  });
  return { status, connection };
}
