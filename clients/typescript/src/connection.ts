// One WebSocket for all subscriptions of a client: opens it, opens it again when it is lost, and starts every subscription
// anew with what it has seen. What a subscription makes of its messages is its own business (window.ts, mirror.ts).

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

/** How things stand with the server. Subscriptions keep their last data in all of these. */
export type ConnectionState =
  /** Nothing is subscribed yet. */
  | { readonly state: "idle" }
  | { readonly state: "connecting" }
  | { readonly state: "live"; readonly server: string; readonly role: "viewer" | "operator"; readonly sql: boolean }
  /** Lost; the next try is at `retryAt` (milliseconds, as of `Date.now()`). */
  | { readonly state: "away"; readonly retryAt: number; readonly reason: string }
  /** The server does not let us in: only `reconnect` tries again. */
  | { readonly state: "refused"; readonly error: TurnoutError }
  | { readonly state: "closed" };

// A handler of any event: the WebSockets of browsers, of Node and of packages type theirs differently.
type Handler = ((this: any, event: any) => any) | null;

/** The part of a WebSocket that is used; browsers and Node 22 have one. */
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

/** What a connection asks of a subscription. */
export interface Subscriber {
  /** The message that starts it, with what it has seen already. */
  request(id: string): ClientMessage;
  receive(answer: Answer): void;
  /** The server ended it. It can be started again. */
  failed(error: TurnoutError): void;
  /** The client was closed. */
  ended(): void;
}

export const FIRST_DELAY_MS = 250;
export const LONGEST_DELAY_MS = 5_000;
/** How soon a table is asked for again that a server does not have because it has published nothing yet. */
export const TABLE_DELAY_MS = 1_000;
/** For a server that accepts and then says nothing. */
const HELLO_MS = 10_000;
/** The status comes about once a second: when it is subscribed and nothing comes for this long, the line is dead. */
const SILENCE_MS = 15_000;

export class Connection {
  state: ConnectionState = { state: "idle" };
  /** The store behind the server, as of the last hello: a position that was seen in another one means nothing. */
  store: string | null = null;

  private readonly access: Access;
  private readonly api: Api;
  private readonly Socket: SocketMaker | null;
  private readonly listeners = new Set<(state: ConnectionState) => void>();
  private readonly ids = new Map<Subscriber, string>();
  private readonly subscribers = new Map<string, Subscriber>();
  /** Those that wait for the first generation. */
  private readonly waiting = new WeakSet<Subscriber>();
  private socket: Socket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private watch: ReturnType<typeof setInterval> | undefined;
  private lastId = 0;
  private failures = 0;
  private liveSince: number | null = null;
  private heardAt = 0;
  private expectsStatus = false;
  /** Counts what `drop` ended: a token that comes later is not used. */
  private attempt = 0;

  constructor(access: Access, api: Api, Socket: SocketMaker | null) {
    this.access = access;
    this.api = api;
    this.Socket = Socket;
    // A machine that was asleep or without a network need not wait for its turn.
    globalThis.addEventListener?.("online", this.online);
  }

  /** Calls the listener with the state now, and whenever it changes; gives the function that ends this. */
  listen(listener: (state: ConnectionState) => void): () => void {
    this.listeners.add(listener);
    safely(() => listener(this.state));
    return () => void this.listeners.delete(listener);
  }

  /** Start a subscription, or start it anew. Each start has an id of its own: answers to an earlier one are not mistaken. */
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

  /** Try now: when it was refused, or instead of waiting. */
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
    this.timer = setTimeout(() => this.giveUp(`the server said nothing for ${HELLO_MS / 1000} s`), HELLO_MS);
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
      // Anything else is of a newer server, and not for us.
    }
  }

  private live(server: string, role: "viewer" | "operator", sql: boolean): void {
    clearTimeout(this.timer);
    this.liveSince = performance.now();
    this.watch = setInterval(() => this.listenForSilence(), SILENCE_MS / 3);
    // Those that a listener starts now ask by themselves.
    const waiting = [...this.ids];
    this.become({ state: "live", server, role, sql });
    for (const [subscriber, id] of waiting) {
      if (this.ids.get(subscriber) === id) this.request(subscriber);
    }
  }

  private listenForSilence(): void {
    if (this.expectsStatus && performance.now() - this.heardAt > SILENCE_MS) {
      this.giveUp(`nothing came for ${SILENCE_MS / 1000} s`);
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

  /** A server that has just started has no tables until it publishes the first generation: then they are asked for again. */
  private async unknownTable(subscriber: Subscriber, id: string, error: TurnoutError): Promise<void> {
    const attempt = this.attempt;
    const isCurrent = (): boolean => attempt === this.attempt && this.ids.get(subscriber) === id;
    const published = await this.api.status().then(
      (status) => status.generation > 0,
      () => false,
    );
    if (!isCurrent()) return;
    // What was published since the table was refused may have it.
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
    // The server would end the connection of all for it.
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
    // Meanwhile it may have been closed, or told to reconnect.
    if (this.socket !== socket) return;
    this.drop(1000);
    if (refusal?.status === 401 || refusal?.status === 403) this.refuse(refusal);
    else this.retryLater(refusal?.message ?? reason);
  }

  /** Why a connection could not be made: browsers do not tell, so an ordinary request has to find out. */
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

  /** Not at once: who subscribes has what it is given before it is told that it failed. */
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

  /** Leave the socket, whatever it still says. */
  private drop(code: number): void {
    clearTimeout(this.timer);
    clearInterval(this.watch);
    const socket = this.socket;
    // A server that lets us in and throws us out at once is not asked ever faster.
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

/** Run what others wrote: its error is theirs (it shows as uncaught), and the connection goes on. */
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
  const hint = "take Node 22 or newer, or give `connect` a WebSocket";
  return new TurnoutError({ code: "no_websocket", message: "there is no WebSocket here", hint });
}

function tooLarge(): TurnoutError {
  const message = `the subscription has more than the ${MAX_MESSAGE_BYTES} bytes allowed`;
  return new TurnoutError({ code: "message_too_large", message, hint: "ask for fewer columns or shorter conditions" });
}
