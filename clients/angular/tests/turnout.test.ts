import "./dom";
import { Component, inject, signal } from "@angular/core";
import { TestBed } from "@angular/core/testing";
import {
  provideTurnout,
  rowId,
  type Status,
  Turnout,
  TurnoutClient,
  type TurnoutConnection,
  type TurnoutError,
  type TurnoutOptions,
  type WindowOptions,
} from "@turnout/angular";
import { WebSocket as NodeSocket } from "ws";
import { afterEach, beforeEach, expect, test } from "vitest";
import { TestServer, until } from "../../typescript/tests/server";

interface User {
  userId: string;
  age: number | null;
}

const STATUS = { generation: 1, state: "live", joinType: "left", lastApplied: null, lag: 0, requestId: null };
let server: TestServer;

beforeEach(async () => {
  server = await TestServer.start();
});

afterEach(async () => {
  TestBed.resetTestingModule();
  await server.stop();
});

function started(options: TurnoutOptions | (() => TurnoutOptions) = {}): Turnout {
  const given = (): TurnoutOptions => ({ url: server.url, ...(typeof options === "function" ? options() : options) });
  TestBed.configureTestingModule({ providers: [provideTurnout(given)] });
  return TestBed.inject(Turnout);
}

/** Wait for a condition, and run effects meanwhile, as an application without zones does. */
async function eventually(condition: () => boolean): Promise<void> {
  await until(() => {
    TestBed.tick();
    return condition();
  });
}

async function sendStatus(status: Partial<Status> = {}): Promise<void> {
  const { id } = await server.hears("status");
  server.send({ type: "status", id, status: { ...STATUS, ...status } });
}

test("status and connection are signals and observables", async () => {
  const turnout = started();
  const states: TurnoutConnection["state"][] = [];
  const generations: number[] = [];
  turnout.connection$.subscribe(({ state }) => states.push(state));
  turnout.status$.subscribe(({ generation }) => generations.push(generation));
  expect([turnout.connection().state, turnout.status()]).toEqual(["connecting", null]);
  await sendStatus();
  await until(() => turnout.status() !== null);
  expect(turnout.connection()).toMatchObject({ state: "live", role: "operator" });
  expect(turnout.status()).toMatchObject({ generation: 1, joinType: "left" });
  expect(generations).toEqual([1]);
  expect(states).toEqual(["connecting", "live"]);
});

test("connection is reconnecting until the server is back, without a word between", async () => {
  const turnout = started();
  const states: TurnoutConnection["state"][] = [];
  turnout.connection$.subscribe(({ state }) => states.push(state));
  await sendStatus();
  await until(() => turnout.status() !== null);
  await server.stop();
  await until(() => turnout.connection().state === "reconnecting");
  expect(turnout.connection()).toMatchObject({ reason: expect.any(String) });
  expect(turnout.status()).not.toBeNull();
  await server.listen();
  await until(() => turnout.connection().state === "live");
  expect([...new Set(states)]).toEqual(["connecting", "live", "reconnecting"]);
  expect(states.at(-2)).toBe("reconnecting");
});

test("connection says why it is refused, and comes back with another token", async () => {
  server.refuses = 401;
  const turnout = started({ token: "wrong" });
  await until(() => turnout.connection().state === "refused");
  const refused = turnout.connection() as Extract<TurnoutConnection, { state: "refused" }>;
  expect(refused.error).toMatchObject({ code: "not_authorized", hint: "ask for one", status: 401 });
  server.refuses = null;
  turnout.reconnect("right");
  await until(() => turnout.connection().state === "live");
  expect(server.protocols.at(-1)).toContain(Buffer.from("right").toString("base64url"));
});

test("options and token are functions that may inject", async () => {
  class Session {
    readonly token = "of the session";
  }
  TestBed.configureTestingModule({
    providers: [Session, provideTurnout(() => ({ url: server.url, token: () => Promise.resolve(inject(Session).token) }))],
  });
  TestBed.inject(Turnout);
  await server.hears("status");
  expect(server.protocols[0]).toContain(Buffer.from("of the session").toString("base64url"));
});

test("window is signals that follow their options", async () => {
  const turnout = started();
  const options = signal<WindowOptions | null>({ table: "final_ui", where: "age>1", sort: "-age" });
  const users = TestBed.runInInjectionContext(() => turnout.window<User>(options));
  expect([users.rows(), users.info(), users.error()]).toEqual([[], null, null]);
  TestBed.tick();
  const first = await server.hears("window");
  expect(first).toMatchObject({ table: "final_ui", where: "age>1", sort: "-age" });
  server.rows(first.id, { a: ["u1", 40] }, { generation: 3 });
  await until(() => users.rows().length === 1);
  expect(users.rows()[0]!.age).toBe(40);
  expect(rowId(users.rows()[0]!)).toBe("a");
  expect(users.info()).toMatchObject({ generation: 3, total: 1 });

  options.set({ table: "final_ui", sort: "-age" });
  TestBed.tick();
  expect(await server.hears("window", 2)).not.toHaveProperty("where");
  options.set({ table: "final_ui", sort: "-age" });
  TestBed.tick();
  options.set(null);
  TestBed.tick();
  await server.hears("unsubscribe", 2);
  expect([users.rows(), users.info()]).toEqual([[], null]);
  expect(server.asked.filter(({ type }) => type === "window")).toHaveLength(2);
});

test("window keeps its rows when it ends with an error, and goes on with other options", async () => {
  const turnout = started();
  const where = signal("age>1");
  const users = TestBed.runInInjectionContext(() => turnout.window<User>(() => ({ table: "final_ui", where: where() })));
  TestBed.tick();
  const first = await server.hears("window");
  server.rows(first.id, { a: ["u1", 40] });
  await until(() => users.rows().length === 1);
  server.send({ type: "error", id: first.id, error: { code: "bad_where", message: "no column", hint: "fix it" } });
  await until(() => users.error() !== null);
  expect(users.error()).toMatchObject({ name: "TurnoutError", code: "bad_where", hint: "fix it" });
  expect(users.rows()).toHaveLength(1);
  users.reload();
  expect(await server.hears("window", 2)).toMatchObject({ where: "age>1" });
  where.set("age>2");
  TestBed.tick();
  const third = await server.hears("window", 3);
  server.rows(third.id, { a: ["u1", 40] });
  await until(() => users.error() === null);
});

test("window ends with its component, and everything with its injector", async () => {
  @Component({ template: `{{ users.rows().length }} rows` })
  class Users {
    readonly users = inject(Turnout).window<User>({ table: "users_ui" });
  }
  const turnout = started();
  const fixture = TestBed.createComponent(Users);
  await fixture.whenStable();
  const { id } = await server.hears("window");
  server.rows(id, { a: ["u1", 40], b: ["u2", 50] });
  await eventually(() => (fixture.nativeElement as HTMLElement).textContent === "2 rows");
  fixture.destroy();
  await server.hears("unsubscribe");
  expect(server.sockets.size).toBe(1);

  const completed: string[] = [];
  turnout.status$.subscribe({ complete: () => completed.push("status") });
  turnout.window$({ table: "users_ui" }).subscribe({ complete: () => completed.push("window") });
  TestBed.resetTestingModule();
  await until(() => server.sockets.size === 0);
  expect(completed.sort()).toEqual(["status", "window"]);
  expect(turnout.client.connection.state).toBe("closed");
});

test("window as an observable: each subscriber has its own, and an error ends it", async () => {
  const turnout = started();
  const steps: [number, number][] = [];
  const errors: TurnoutError[] = [];
  const users$ = turnout.window$<User>({ table: "final_ui" });
  const one = users$.subscribe(({ rows, info }) => steps.push([rows.length, info.generation]));
  const { id } = await server.hears("window");
  server.rows(id, { a: ["u1", 40] }, { generation: 2 });
  await until(() => steps.length === 1);
  expect(steps).toEqual([[1, 2]]);
  one.unsubscribe();
  await server.hears("unsubscribe");
  users$.subscribe({ error: (error: TurnoutError) => errors.push(error) });
  const second = await server.hears("window", 2);
  server.send({ type: "error", id: second.id, error: { code: "bad_where", message: "no column", hint: "" } });
  await until(() => errors.length === 1);
  expect(errors[0]!.code).toBe("bad_where");
});

test("summary and SQL are signals too", async () => {
  const turnout = started();
  const [types, ages] = TestBed.runInInjectionContext(() => [
    turnout.summary<{ accountType: string; count: number }>({ table: "final_ui", by: "accountType" }),
    turnout.sql<{ age: number }>({ sql: "SELECT age FROM users_ui" }),
  ]);
  TestBed.tick();
  const summary = await server.hears("summary");
  const columns = [
    { name: "accountType", type: "string" },
    { name: "count", type: "int64" },
  ];
  const groups = [["gold", 3]];
  server.send({ type: "summary", id: summary.id, table: "final_ui", generation: 1, version: 1, by: ["accountType"], columns, groups, total: 1 });
  await until(() => types.rows().length === 1);
  expect(types.rows()[0]).toMatchObject({ accountType: "gold", count: 3 });
  const sql = await server.hears("sql");
  expect(sql).toMatchObject({ sql: "SELECT age FROM users_ui", live: true });
  const rows = { type: "rows" as const, id: sql.id, table: "sql", generation: 1, version: 1, total: 1, offset: 0 };
  server.send({ ...rows, columns: [{ name: "age", type: "int64" }], ids: ["0"], rows: [[7]] });
  await until(() => ages.rows().length === 1);
  expect(ages.rows()[0]!.age).toBe(7);
});

test("changes come as an observable, with all rows", async () => {
  const turnout = started();
  const sizes: [string, number][] = [];
  turnout.changes$<User>("users_ui").subscribe(({ change, mirror }) => sizes.push([change.kind, mirror.rows.size]));
  const { id } = await server.hears("changes");
  const snapshot = { type: "snapshot" as const, id, table: "users_ui", generation: 1, version: 1, reason: "subscribed" as const };
  const columns = [{ name: "userId", type: "string" }];
  server.send({ ...snapshot, columns, last: true, ids: ["a"], rows: [["u1"]] });
  await until(() => sizes.length === 1);
  expect(sizes).toEqual([["snapshot", 1]]);
});

test("tables are asked for anew after a swap", async () => {
  server.answers = () => ({ status: 200, body: { tables: [{ name: `final_ui of ${server.calls.length}`, columns: [], rows: 0, generation: 1, version: 1 }] } });
  const turnout = started();
  const names = (): string[] => turnout.tables().map(({ name }) => name);
  expect(names()).toEqual([]);
  await sendStatus();
  await eventually(() => names()[0] === "final_ui of 1");
  await sendStatus({ generation: 2 });
  await eventually(() => names()[0] === "final_ui of 2");
  expect(server.calls.map(({ url }) => url)).toEqual(["/api/tables", "/api/tables"]);
});

test("the client itself is injected", () => {
  const turnout = started({ WebSocket: NodeSocket });
  expect(TestBed.inject(TurnoutClient)).toBe(turnout.client);
});
