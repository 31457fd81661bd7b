import { afterEach, beforeEach, expect, test } from "vitest";
import { connect, type MirrorChange, rowId, type Snapshot, type TurnoutClient } from "../src/index.js";
import { COLUMNS, TestServer, until } from "./server.js";

interface User {
  userId: string;
  age: number;
}

let server: TestServer;
let client: TurnoutClient;

beforeEach(async () => {
  server = await TestServer.start();
  client = connect({ url: server.url });
});

afterEach(async () => {
  client.close();
  await server.stop();
});

function mirrored() {
  const seen: MirrorChange<User>[] = [];
  const mirror = client.changes<User>("users_ui", { onChange: (change) => seen.push(change) });
  return { mirror, seen };
}

function snapshot(id: string, rows: Record<string, unknown[]>, more: Partial<Snapshot> = {}): void {
  const at = { type: "snapshot" as const, id, table: "users_ui", generation: 1, version: 1, reason: "subscribed" as const };
  server.send({ ...at, last: true, columns: COLUMNS, ids: Object.keys(rows), rows: Object.values(rows), ...more });
}

type Cells = Record<string, unknown[]>;

function changes(id: string, since: number, what: { insert?: Cells; update?: Cells; delete?: string[] }, generation = 1): void {
  const set = (rows: Cells = {}) => ({ ids: Object.keys(rows), rows: Object.values(rows) });
  const at = { type: "changes" as const, id, table: "users_ui", generation, version: since + 1, since };
  server.send({ ...at, insert: set(what.insert), update: set(what.update), delete: what.delete ?? [] });
}

test("mirror holds a snapshot, then every change", async () => {
  const { mirror, seen } = mirrored();
  const { id, resume } = await server.hears("changes");
  expect(resume).toBeNull();
  expect(mirror.ready).toBe(false);
  snapshot(id, { a: ["u1", 1], b: ["u2", 2] });
  changes(id, 1, { insert: { c: ["u3", 3] }, update: { a: ["u1", 11] }, delete: ["b"] });
  await until(() => seen.length === 2);
  expect([...mirror.rows.keys()]).toEqual(["a", "c"]);
  expect([...mirror.rows.values()].map((row) => [row.userId, row.age])).toEqual([
    ["u1", 11],
    ["u3", 3],
  ]);
  expect(mirror).toMatchObject({ table: "users_ui", generation: 1, version: 2, ready: true, columns: COLUMNS });
  const change = seen[1] as Extract<MirrorChange<User>, { kind: "changes" }>;
  expect(change.inserted.map((row) => rowId(row))).toEqual(["c"]);
  expect(change.updated.map((row) => row.age)).toEqual([11]);
  expect(change.deleted.map((row) => row.userId)).toEqual(["u2"]);
});

test("mirror shows a snapshot of several parts only when all are there", async () => {
  const { mirror, seen } = mirrored();
  const { id } = await server.hears("changes");
  snapshot(id, { a: ["u1", 1] });
  await until(() => seen.length === 1);
  const swap = { generation: 2, version: 9, reason: "swap" as const };
  snapshot(id, { x: ["u7", 7] }, { ...swap, last: false });
  snapshot(id, { y: ["u8", 8] }, { ...swap, last: false });
  client.onStatus(() => undefined);
  const status = await server.hears("status");
  let answered = false;
  client.onStatus(() => (answered = true));
  server.send({ type: "status", id: status.id, status: {} });
  await until(() => answered);
  expect([...mirror.rows.keys()]).toEqual(["a"]);
  expect(mirror.generation).toBe(1);
  snapshot(id, { z: ["u9", 9] }, swap);
  await until(() => seen.length === 2);
  expect([...mirror.rows.keys()]).toEqual(["x", "y", "z"]);
  expect(mirror).toMatchObject({ generation: 2, version: 9 });
  expect(seen[1]).toEqual({ kind: "snapshot", reason: "swap" });
});

test("mirror forgets the parts of a snapshot that was not finished", async () => {
  const { mirror, seen } = mirrored();
  const { id } = await server.hears("changes");
  snapshot(id, { a: ["u1", 1] }, { version: 1, last: false });
  snapshot(id, { b: ["u2", 2] }, { version: 2, reason: "behind" });
  await until(() => seen.length === 1);
  expect([...mirror.rows.keys()]).toEqual(["b"]);
});

test.each([
  ["a gap", { since: 2, generation: 1 }],
  ["a repeat", { since: 0, generation: 1 }],
  ["another generation", { since: 1, generation: 2 }],
])("mirror starts anew after %s, and keeps its rows until then", async (_, { since, generation }) => {
  const { mirror, seen } = mirrored();
  const first = await server.hears("changes");
  snapshot(first.id, { a: ["u1", 1] });
  changes(first.id, since, { delete: ["a"] }, generation);
  const second = await server.hears("changes", 2);
  expect(second.resume).toBeNull();
  expect(second.id).not.toBe(first.id);
  expect([...mirror.rows.keys()]).toEqual(["a"]);
  changes(first.id, 3, { insert: { late: ["u1", 1] } });
  snapshot(second.id, { b: ["u2", 2] }, { version: 5 });
  changes(second.id, 5, { insert: { c: ["u3", 3] } });
  await until(() => seen.length === 3);
  expect([...mirror.rows.keys()]).toEqual(["b", "c"]);
  expect(mirror.version).toBe(6);
});

test("mirror resumes by its version after the connection was lost", async () => {
  const { mirror, seen } = mirrored();
  const first = await server.hears("changes");
  snapshot(first.id, { a: ["u1", 1] }, { generation: 3, version: 5 });
  await until(() => seen.length === 1);
  await server.stop();
  await server.listen();
  const second = await server.hears("changes", 2);
  expect(second.resume).toEqual({ generation: 3, version: 5 });
  expect(mirror.ready).toBe(true);
  changes(second.id, 5, { insert: { b: ["u2", 2] } }, 3);
  await until(() => seen.length === 2);
  expect([...mirror.rows.keys()]).toEqual(["a", "b"]);
});

test("mirror does not resume in another store", async () => {
  const { seen } = mirrored();
  const first = await server.hears("changes");
  snapshot(first.id, { a: ["u1", 1] });
  await until(() => seen.length === 1);
  server.store = "store-2";
  server.hangUp();
  expect((await server.hears("changes", 2)).resume).toBeNull();
});

test("mirror that is closed hears no more", async () => {
  const { mirror, seen } = mirrored();
  const { id } = await server.hears("changes");
  snapshot(id, { a: ["u1", 1] });
  await until(() => seen.length === 1);
  mirror.close();
  expect(await server.hears("unsubscribe")).toEqual({ type: "unsubscribe", id });
  changes(id, 1, { delete: ["a"] });
  client.window({ table: "users_ui" });
  const window = await server.hears("window");
  let came = false;
  client.onStatus(() => (came = true));
  server.send({ type: "status", id: (await server.hears("status")).id, status: {} });
  await until(() => came);
  expect(window.id).not.toBe(id);
  expect(seen.length).toBe(1);
});

test("mirror follows a table whose columns changed", async () => {
  const { mirror, seen } = mirrored();
  const { id } = await server.hears("changes");
  snapshot(id, { a: ["u1", 1] });
  const columns = [{ name: "phone", type: "string" }, { name: "userId", type: "string" }];
  snapshot(id, { a: ["+1", "u1"] }, { generation: 2, reason: "swap", columns });
  changes(id, 1, { insert: { b: ["+2", "u2"] } }, 2);
  await until(() => seen.length === 3);
  expect(mirror.columns).toEqual(columns);
  expect(JSON.parse(JSON.stringify([...mirror.rows.values()]))).toEqual([
    { phone: "+1", userId: "u1" },
    { phone: "+2", userId: "u2" },
  ]);
});
