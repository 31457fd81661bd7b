// The WebSocket that all subscriptions of a client share. After a loss it reconnects and resumes every subscription at
// its position. window.ts, mirror.ts and computed.ts process the messages.

import { type Access, type Api, tokenNow } from "./api.js";
import { TurnoutError, unheard } from "./errors.js";
import { MAX_MESSAGE_BYTES, PROTOCOL, TOKEN_PROTOCOL } from "./messages.js";
import type {
  Changes,
  ClientMessage,
  Current,
  DifferenceNow,
  Problem,
  ServerMessage,
  Snapshot,
  StatusNow,
  SummaryGroups,
  WindowRows,
} from "./messages.js";

/** The state of the connection. Subscriptions keep their last data in every state. */
export type ConnectionState =
  /** Nothing is subscribed yet. */
  | { readonly state: "idle" }
  | { readonly state: "connecting" }
  | { readonly state: "live"; readonly server: string; readonly role: "viewer" | "operator"; readonly sql: boolean }
  /** The connection is lost; the next attempt is at `retryAt` (milliseconds, as `Date.now()`). */
  | { readonly state: "away"; readonly retryAt: number; readonly reason: string }
  /** The server refuses this client; only `reconnect` tries again. */
  | { readonly state: "refused"; readonly error: TurnoutError }
  | { readonly state: "closed" };

// A handler of any event: browsers, Node and packages have different types for WebSocket handlers.
type Handler = ((this: any, event: any) => any) | null;

/** The used part of the WebSocket interface, which browsers and Node 22 provide. */
export interface Socket {
  onopen: Handler;
  onmessage: Handler;
  onclose: Handler;
  onerror: Handler;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export type SocketMaker = new (url: string, protocols: string[]) => Socket;

export type Answer = WindowRows | SummaryGroups | DifferenceNow | Current | Snapshot | Changes | StatusNow;

/** The interface of a subscription to the connection. */
export interface Subscriber {
  /** Return the message that starts the subscription, with its position. */
  request(id: string): ClientMessage;
  receive(answer: Answer): void;
  /** Called when the server has ended the subscription; it can be started again. */
  failed(error: TurnoutError): void;
  /** Called when the client was closed. */
  ended(): void;
}

export const FIRST_DELAY_MS = 250;
export const LONGEST_DELAY_MS = 5_000;
/** The pause before a table is requested again from a server that has not published anything yet. */
export const TABLE_DELAY_MS = 1_000;
/** The time limit for the first message of the server. */
const HELLO_MS = 10_000;
/** A subscribed status arrives about once a second: after this time without a message the connection is dead. */
const SILENCE_MS = 15_000;

export class Connection {
  state: ConnectionState = { state: "idle" };
  /** The store of the server, from the last hello message; positions are valid only in the same store. */
  store: string | null = null;

  private readonly access: Access;
  private readonly api: Api;
  private readonly Socket: SocketMaker | null;
  private readonly listeners = new Set<(state: ConnectionState) => void>();
  private readonly ids = new Map<Subscriber, string>();
  private readonly subscribers = new Map<string, Subscriber>();
  /** The subscriptions that wait for the first generation. */
  private readonly waiting = new WeakSet<Subscriber>();
  private socket: Socket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private watch: ReturnType<typeof setInterval> | undefined;
  private lastId = 0;
  private failures = 0;
  private liveSince: number | null = null;
  private heardAt = 0;
  private expectsStatus = false;
  /** Incremented by `drop`, so that a token that arrives later is not used. */
  private attempt = 0;

  constructor(access: Access, api: Api, Socket: SocketMaker | null) {
    this.access = access;
    this.api = api;
    this.Socket = Socket;
    // After sleep or a network failure, reconnect at once.
    globalThis.addEventListener?.("online", this.online);
  }

  /** Call the listener with the state now and whenever it changes. Return a function that removes it. */
  listen(listener: (state: ConnectionState) => void): () => void {
    this.listeners.add(listener);
    safely(() => listener(this.state));
    return () => void this.listeners.delete(listener);
  }

  /** Start or restart a subscription. Each start has a new id, so that answers to an earlier start are ignored. */
  start(subscriber: Subscriber): void {
    if (this.state.state === "closed") throw new Error("this client is closed");
    this.stop(subscriber);
    this.add(subscriber);
    if (this.state.state === "live") this.request(subscriber);
    else if (this.state.state === "idle") this.open();
    else if (this.state.state === "refused") this.refuseSoon(this.state.error, [subscriber]);
  }

  stop(subscriber: Subscriber): void {
    const id = this.ids.get(subscriber);
    if (id === undefined) return;
    this.remove(subscriber, id);
    if (this.state.state === "live") this.send({ type: "unsubscribe", id });
  }

  /** Reconnect now, after a refusal or instead of waiting. */
  reconnect(): void {
    if (this.state.state === "closed") return;
    this.failures = 0;
    this.drop(1000);
    this.open();
  }

  close(): void {
    if (this.state.state === "closed") return;
    this.drop(1000);
    globalThis.removeEventListener?.("online", this.online);
    this.become({ state: "closed" });
    for (const [subscriber, id] of [...this.ids]) {
      this.remove(subscriber, id);
      safely(() => subscriber.ended());
    }
    this.listeners.clear();
  }

  private readonly online = (): void => {
    if (this.state.state === "away") this.reconnect();
  };

  private open(): void {
    clearTimeout(this.timer);
    this.become({ state: "connecting" });
    const Socket = this.Socket;
    if (Socket === null) return this.refuse(noSocket());
    const attempt = this.attempt;
    const failed = (error: unknown): void => {
      if (attempt === this.attempt) this.retryLater(error instanceof Error ? error.message : String(error));
    };
    try {
      const token = tokenNow(this.access);
      if (token instanceof Promise) token.then((text) => attempt === this.attempt && this.dial(Socket, text), failed);
      else this.dial(Socket, token);
    } catch (error) {
      failed(error);
    }
  }

  private dial(Socket: SocketMaker, token: string | null): void {
    let socket: Socket;
    try {
      socket = new Socket(liveUrl(this.access.base), protocols(token));
    } catch (error) {
      return this.refuse(cannotConnect(this.access.base, error));
    }
    this.socket = socket;
    let opened = false;
    socket.onopen = () => void (opened = true);
    socket.onerror = () => undefined;
    socket.onmessage = ({ data }: { data: unknown }) => {
      if (this.socket === socket) this.receive(String(data));
    };
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      if (this.socket === socket) void this.lost(opened, reason || `the connection was closed (${code})`);
    };
    this.timer = setTimeout(() => this.giveUp(`the server sent nothing for ${HELLO_MS / 1000} s`), HELLO_MS);
  }

  private receive(text: string): void {
    this.heardAt = performance.now();
    const message = JSON.parse(text) as ServerMessage;
    switch (message.type) {
      case "hello":
        this.store = message.store;
        return this.live(message.server, message.role, message.sql ?? false);
      case "error":
        return this.problem(message);
      case "rows":
      case "summary":
      case "difference":
      case "current":
      case "snapshot":
      case "changes":
      case "status": {
        const subscriber = this.subscribers.get(message.id);
        if (subscriber) safely(() => subscriber.receive(message));
      }
      // Messages of other types come from a newer server and are ignored.
    }
  }

  private live(server: string, role: "viewer" | "operator", sql: boolean): void {
    clearTimeout(this.timer);
    this.liveSince = performance.now();
    this.watch = setInterval(() => this.listenForSilence(), SILENCE_MS / 3);
    // A subscription that a listener starts now sends its own request.
    const waiting = [...this.ids];
    this.become({ state: "live", server, role, sql });
    for (const [subscriber, id] of waiting) {
      if (this.ids.get(subscriber) === id) this.request(subscriber);
    }
  }

  private listenForSilence(): void {
    if (this.expectsStatus && performance.now() - this.heardAt > SILENCE_MS) {
      this.giveUp(`the server sent nothing for ${SILENCE_MS / 1000} s`);
    }
  }

  private problem({ id, error: info }: Problem): void {
    const error = new TurnoutError(info);
    if (id === null) return unheard(error);
    const subscriber = this.subscribers.get(id);
    if (subscriber === undefined) return;
    if (error.code === "unknown_table") void this.unknownTable(subscriber, id, error);
    else this.fail(subscriber, id, error);
  }

  /** Handle an unknown table. A server that has just started has no tables yet, so request the table again. */
  private async unknownTable(subscriber: Subscriber, id: string, error: TurnoutError): Promise<void> {
    const attempt = this.attempt;
    const isCurrent = (): boolean => attempt === this.attempt && this.ids.get(subscriber) === id;
    const published = await this.api.status().then(
      (status) => status.generation > 0,
      () => false,
    );
    if (!isCurrent()) return;
    // A generation that was published after the refusal may have the table.
    if (published && !this.waiting.delete(subscriber)) return this.fail(subscriber, id, error);
    if (!published) this.waiting.add(subscriber);
    const again = (): void => {
      if (!isCurrent()) return;
      this.remove(subscriber, id);
      this.add(subscriber);
      this.request(subscriber);
    };
    setTimeout(again, published ? 0 : TABLE_DELAY_MS);
  }

  private fail(subscriber: Subscriber, id: string, error: TurnoutError): void {
    this.remove(subscriber, id);
    safely(() => subscriber.failed(error));
  }

  private request(subscriber: Subscriber): void {
    const id = this.ids.get(subscriber)!;
    const message = subscriber.request(id);
    this.expectsStatus ||= message.type === "status";
    if (!this.send(message)) this.fail(subscriber, id, tooLarge());
  }

  private send(message: ClientMessage): boolean {
    const text = JSON.stringify(message);
    // The server would close the connection because of a message that is too large.
    if (text.length * 3 > MAX_MESSAGE_BYTES && new TextEncoder().encode(text).length > MAX_MESSAGE_BYTES) return false;
    this.socket?.send(text);
    return true;
  }

  private giveUp(reason: string): void {
    this.drop(4000);
    this.retryLater(reason);
  }

  private async lost(opened: boolean, reason: string): Promise<void> {
    const socket = this.socket;
    const refusal = opened ? null : await this.refusal();
    // Meanwhile the connection may have been closed or reconnected.
    if (this.socket !== socket) return;
    this.drop(1000);
    if (refusal?.status === 401 || refusal?.status === 403) this.refuse(refusal);
    else this.retryLater(refusal?.message ?? reason);
  }

  /** Find out why the connection failed with an HTTP request, because browsers do not give the reason. */
  private async refusal(): Promise<TurnoutError | null> {
    try {
      await this.api.status();
      return null;
    } catch (error) {
      return error instanceof TurnoutError ? error : null;
    }
  }

  private refuse(error: TurnoutError): void {
    this.become({ state: "refused", error });
    this.refuseSoon(error, [...this.ids.keys()]);
  }

  /** Report a refusal in a microtask, so that a caller has its subscription object before `onError` is called. */
  private refuseSoon(error: TurnoutError, subscribers: Subscriber[]): void {
    queueMicrotask(() => {
      for (const subscriber of subscribers) if (this.ids.has(subscriber)) safely(() => subscriber.failed(error));
    });
  }

  private retryLater(reason: string): void {
    const delay = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** this.failures++) * (0.5 + Math.random() / 2);
    this.timer = setTimeout(() => this.open(), delay);
    this.become({ state: "away", retryAt: Date.now() + delay, reason });
  }

  /** Close the socket, and ignore its later events. */
  private drop(code: number): void {
    clearTimeout(this.timer);
    clearInterval(this.watch);
    const socket = this.socket;
    // Pauses start short again only after a connection that lasted.
    if (this.liveSince !== null && performance.now() - this.liveSince > LONGEST_DELAY_MS) this.failures = 0;
    this.attempt += 1;
    this.socket = null;
    this.liveSince = null;
    this.expectsStatus = false;
    socket?.close(code);
  }

  private add(subscriber: Subscriber): void {
    const id = String(++this.lastId);
    this.ids.set(subscriber, id);
    this.subscribers.set(id, subscriber);
  }

  private remove(subscriber: Subscriber, id: string): void {
    this.ids.delete(subscriber);
    this.subscribers.delete(id);
  }

  private become(state: ConnectionState): void {
    this.state = Object.freeze(state);
    for (const listener of [...this.listeners]) safely(() => listener(state));
  }
}

/** Run a callback; its error is reported as uncaught, and the connection continues. */
export function safely(call: () => void): void {
  try {
    call();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

function liveUrl(base: string): string {
  return `${base.replace(/^http/, "ws")}/api/live`;
}

function protocols(token: string | null): string[] {
  return token === null ? [PROTOCOL] : [PROTOCOL, TOKEN_PROTOCOL + base64url(token)];
}

function base64url(text: string): string {
  const bytes = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(bytes).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function cannotConnect(base: string, cause: unknown): TurnoutError {
  const hint = "give an address such as http://127.0.0.1:10000; a page over https needs a server over https";
  return new TurnoutError({ code: "bad_address", message: `cannot connect to ${base}: ${String(cause)}`, hint }, null, { cause });
}

function noSocket(): TurnoutError {
  const hint = "use Node 22 or newer, or pass a WebSocket to `connect`";
  return new TurnoutError({ code: "no_websocket", message: "there is no WebSocket here", hint });
}

function tooLarge(): TurnoutError {
  const message = `the subscription has more than the allowed ${MAX_MESSAGE_BYTES} bytes`;
  return new TurnoutError({ code: "message_too_large", message, hint: "request fewer columns, or shorten the conditions" });
}
