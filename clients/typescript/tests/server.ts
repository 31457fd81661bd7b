// A small server for the tests: it sends only the messages of a test, and records the requests.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import type { ClientMessage, ServerMessage, WindowRows } from "../src/index.js";

export interface Call {
  method: string;
  url: string;
  headers: IncomingMessage["headers"];
  body: string;
}

export const COLUMNS = [
  { name: "userId", type: "string" },
  { name: "age", type: "int64" },
];

export class TestServer {
  readonly asked: ClientMessage[] = [];
  readonly calls: Call[] = [];
  readonly protocols: string[] = [];
  store = "store-1";
  /** The status with which handshakes and calls are refused. */
  refuses: number | null = null;
  answers: (call: Call) => { status: number; body: unknown } = () => ({ status: 200, body: {} });
  sockets = new Set<WebSocket>();
  handshakes = 0;
  private http!: Server;
  private port = 0;

  static async start(): Promise<TestServer> {
    const server = new TestServer();
    await server.listen();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Start again at the same address, after `stop`. */
  async listen(): Promise<void> {
    const live = new WebSocketServer({ noServer: true });
    this.http = createServer((request, response) => void this.call(request, response));
    this.http.on("upgrade", (request, socket, head) => {
      this.handshakes += 1;
      if (this.refuses !== null) return socket.end(`HTTP/1.1 ${this.refuses} Refused\r\nConnection: close\r\n\r\n`);
      this.protocols.push(request.headers["sec-websocket-protocol"] ?? "");
      live.handleUpgrade(request, socket, head, (opened) => this.welcome(opened));
    });
    await new Promise<void>((resolve) => this.http.listen(this.port, "127.0.0.1", resolve));
    this.port = (this.http.address() as AddressInfo).port;
  }

  async stop(code = 1012): Promise<void> {
    this.hangUp(code);
    this.http.closeAllConnections();
    await new Promise((resolve) => this.http.close(resolve));
  }

  hangUp(code = 1012): void {
    for (const socket of this.sockets) socket.close(code, "the server stops");
    this.sockets.clear();
  }

  send(message: ServerMessage): void {
    for (const socket of this.sockets) socket.send(JSON.stringify(message));
  }

  /** Wait until there are `count` messages of a type, and return the last of them. */
  async hears<Type extends ClientMessage["type"]>(type: Type, count = 1): Promise<Extract<ClientMessage, { type: Type }>> {
    const heard = () => this.asked.filter((message) => message.type === type);
    await until(() => heard().length >= count);
    return heard()[count - 1] as Extract<ClientMessage, { type: Type }>;
  }

  rows(id: string, rows: Record<string, unknown[]>, more: Partial<WindowRows> = {}): void {
    const ids = Object.keys(rows);
    const { generation = 1, version = 1, columns = COLUMNS } = more;
    const window = { type: "rows" as const, id, table: "final_ui", generation, version, total: ids.length, offset: 0 };
    this.send({ ...window, columns, ids, rows: Object.values(rows) });
  }

  private welcome(socket: WebSocket): void {
    this.sockets.add(socket);
    socket.on("close", () => this.sockets.delete(socket));
    socket.on("message", (data) => this.asked.push(JSON.parse(String(data)) as ClientMessage));
    const hello = { type: "hello", server: "turnout test", store: this.store, role: "operator" } satisfies ServerMessage;
    socket.send(JSON.stringify(hello));
  }

  private async call(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = "";
    for await (const chunk of request) body += String(chunk);
    const call = { method: request.method!, url: request.url!, headers: request.headers, body };
    this.calls.push(call);
    const refusal = { error: { code: "not_authorized", message: "the token is not known", hint: "ask for one" } };
    const answer = this.refuses === null ? this.answers(call) : { status: this.refuses, body: refusal };
    response.writeHead(answer.status, { "Content-Type": "application/json" });
    response.end(typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body));
  }
}

/** A time limit that ends a hang. TEST_PATIENCE is the same variable as in the Python tests. */
const PATIENCE_MS = 300_000 * Number(process.env["TEST_PATIENCE"] ?? 1);
// The real functions, also if a test replaces them.
const { setTimeout: later } = globalThis;
const now = Date.now;

export async function until(condition: () => boolean): Promise<void> {
  const deadline = now() + PATIENCE_MS;
  while (!condition()) {
    if (now() > deadline) throw new Error(`not within ${PATIENCE_MS / 1000} s: ${condition}`);
    await new Promise((resolve) => later(resolve, 5));
  }
}
