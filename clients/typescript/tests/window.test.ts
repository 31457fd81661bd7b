import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { connect, rowId, type TurnoutClient, type TurnoutError, type WindowInfo } from "../src/index.js";
import { MOVE_MS } from "../src/window.js";
import { TestServer, until } from "./server.js";

interface User {
  userId: string;
  age: number | null;
}

let server: TestServer;
let client: TurnoutClient;

beforeEach(async () => {
  server = await TestServer.start();
  client = connect({ url: server.url });
});

afterEach(async () => {
  vi.useRealTimers();
  client.close();
  await server.stop();
});

/** Open a window and record all its steps. */
function watched(options = {}) {
  const steps: { rows: readonly User[]; info: WindowInfo }[] = [];
  const errors: TurnoutError[] = [];
  const window = client.window<User>(
    { table: "final_ui", ...options },
    { onRows: (rows, info) => steps.push({ rows, info }), onError: (error) => errors.push(error) },
  );
  return { window, steps, errors };
}

test("window gives frozen rows by column name, with their ids", async () => {
  const { window, steps } = watched({ sort: "-age", limit: 2 });
  const asked = await server.hears("window");
  expect(asked).toMatchObject({ table: "final_ui", sort: "-age", limit: 2, resume: null });
  server.rows(asked.id, { a: ["u1", 40], b: ["u2", null] });
  await until(() => steps.length === 1);
  expect(JSON.parse(JSON.stringify(window.rows))).toEqual([
    { userId: "u1", age: 40 },
    { userId: "u2", age: null },
  ]);
  expect(window.rows.map((row) => rowId(row))).toEqual(["a", "b"]);
  expect(rowId({ ...window.rows[0] })).toBe("a");
  expect(Object.isFrozen(window.rows[0])).toBe(true);
  expect(() => rowId({})).toThrow(TypeError);
  expect(steps[0]!.info).toMatchObject({ generation: 1, version: 1, total: 2, offset: 0, swapped: false });
});

test("window keeps the object of a row that did not change", async () => {
  const { steps } = watched();
  const { id } = await server.hears("window");
  server.rows(id, { a: ["u1", 40], b: ["u2", 50] });
  server.rows(id, { b: ["u2", 51], a: ["u1", 40] }, { version: 2 });
  await until(() => steps.length === 2);
  expect(steps[1]!.rows[1]).toBe(steps[0]!.rows[0]);
  expect(steps[1]!.rows[0]).not.toBe(steps[0]!.rows[1]);
  expect(steps[1]!.rows[0]!.age).toBe(51);
});

test("window takes a column of any name for a column", async () => {
  const { window } = watched();
  const { id } = await server.hears("window");
  const columns = [{ name: "__proto__", type: "string" }];
  const message = { type: "rows" as const, id, table: "final_ui", generation: 1, version: 1, total: 1, offset: 0 };
  server.send({ ...message, columns, ids: ["a"], rows: [["text"]] });
  await until(() => window.rows.length === 1);
  expect(Object.entries(window.rows[0]!)).toEqual([["__proto__", "text"]]);
});

test("window follows a table whose columns changed, in one step", async () => {
  const { window, steps } = watched();
  const { id } = await server.hears("window");
  server.rows(id, { a: ["u1", 40] });
  const columns = [{ name: "age", type: "int64" }, { name: "phone", type: "string" }];
  server.rows(id, { a: [40, "+1"] }, { generation: 2, columns });
  await until(() => steps.length === 2);
  expect(steps[1]!.info).toMatchObject({ generation: 2, swapped: true, columns });
  expect(JSON.parse(JSON.stringify(window.rows))).toEqual([{ age: 40, phone: "+1" }]);
});

test("window of a table that is gone ends with that error, and keeps its rows", async () => {
  const { window, steps, errors } = watched();
  const { id } = await server.hears("window");
  server.rows(id, { a: ["u1", 40] });
  await until(() => steps.length === 1);
  server.send({ type: "error", id, error: { code: "table_gone", message: "the table final_ui is gone", hint: "tables: users_ui" } });
  await until(() => errors.length === 1);
  expect(errors[0]).toMatchObject({ code: "table_gone", hint: "tables: users_ui" });
  expect(window.rows).toHaveLength(1);
});

test("window shows a swap as one step that says so", async () => {
  const { steps } = watched();
  const { id } = await server.hears("window");
  server.rows(id, { a: ["u1", 40] });
  server.rows(id, { z: ["u9", 90] }, { generation: 2 });
  await until(() => steps.length === 2);
  expect(steps.map(({ info }) => [info.generation, info.swapped])).toEqual([
    [1, false],
    [2, true],
  ]);
  expect(server.asked.length).toBe(1);
});

test("window never takes rows of where it was for rows of where it moved", async () => {
  const { window, steps } = watched({ offset: 0 });
  const first = await server.hears("window");
  server.rows(first.id, { a: ["u1", 40] });
  await until(() => steps.length === 1);
  window.move({ offset: 100 });
  const second = await server.hears("window", 2);
  expect(second).toMatchObject({ table: "final_ui", offset: 100, resume: null });
  expect(await server.hears("unsubscribe")).toEqual({ type: "unsubscribe", id: first.id });
  server.rows(first.id, { old: ["u1", 41] }, { version: 2 });
  server.rows(second.id, { b: ["u2", 50] }, { version: 2 });
  await until(() => steps.length === 2);
  expect(window.rows.map((row) => rowId(row))).toEqual(["b"]);
  expect(steps[1]!.info.options.offset).toBe(100);
});

test("window sends only the last of moves that come quickly", async () => {
  const { window } = watched();
  await server.hears("window");
  for (let offset = 1; offset <= 500; offset++) window.move({ offset });
  await until(() => server.asked.some((message) => message.type === "window" && message.offset === 500));
  expect(server.asked.length).toBeLessThan(20);
});

test("window does not take rows that come while a move waits for the answer to it", async () => {
  const { window, steps } = watched();
  await server.hears("window");
  // The second move waits until the test advances the time, however long the answer takes.
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  window.move({ offset: 100 });
  const first = await server.hears("window", 2);
  window.move({ offset: 200 });
  server.rows(first.id, { a: ["u1", 40] }, { generation: 4, version: 7 });
  await until(() => steps.length === 1);
  expect(steps[0]!.info.options.offset).toBe(100);
  vi.advanceTimersByTime(MOVE_MS);
  expect(await server.hears("window", 3)).toMatchObject({ offset: 200, resume: null });
});

test("window resumes where it was after the connection was lost", async () => {
  const { steps } = watched();
  const first = await server.hears("window");
  server.rows(first.id, { a: ["u1", 40] }, { generation: 4, version: 7 });
  await until(() => steps.length === 1);
  server.hangUp();
  const second = await server.hears("window", 2);
  expect(second.resume).toEqual({ generation: 4, version: 7 });
  server.send({ type: "current", id: second.id, table: "final_ui", generation: 4, version: 7 });
  server.rows(second.id, { a: ["u1", 41] }, { generation: 4, version: 8 });
  await until(() => steps.length === 2);
  expect(steps[1]!.rows[0]!.age).toBe(41);
});

test("window does not resume in another store, nor what it moved away from", async () => {
  const { window, steps } = watched();
  const first = await server.hears("window");
  server.rows(first.id, { a: ["u1", 40] });
  await until(() => steps.length === 1);
  server.store = "store-2";
  server.hangUp();
  expect((await server.hears("window", 2)).resume).toBeNull();
  server.hangUp();
  // Nothing arrived from the second store, so the rows are still from the first.
  const third = await server.hears("window", 3);
  expect(third.resume).toBeNull();
  server.rows(third.id, { a: ["u1", 40] });
  await until(() => steps.length === 2);
  window.move({ sort: "age" });
  await server.hears("window", 4);
  server.hangUp();
  expect((await server.hears("window", 5)).resume).toBeNull();
});

test("window of a server that has published nothing yet is asked for again until it has", async () => {
  let published = 0;
  server.answers = ({ url }) => ({ status: url === "/api/status" ? 200 : 404, body: { generation: published } });
  const { steps, errors } = watched();
  const refuse = (id: string) =>
    server.send({ type: "error", id, error: { code: "unknown_table", message: "no table 'final_ui'", hint: "tables: swaps" } });
  refuse((await server.hears("window")).id);
  refuse((await server.hears("window", 2)).id);
  // The generation was published after the refusal, so the table is requested once more, at once.
  const third = await server.hears("window", 3);
  published = 1;
  refuse(third.id);
  const fourth = await server.hears("window", 4);
  server.rows(fourth.id, { a: ["u1", 40] });
  await until(() => steps.length === 1);
  expect(errors).toEqual([]);
});

test("window of a table that no generation has ends with that error", async () => {
  server.answers = () => ({ status: 200, body: { generation: 3 } });
  const { errors } = watched({ table: "nothing" });
  const { id } = await server.hears("window");
  server.send({ type: "error", id, error: { code: "unknown_table", message: "no table 'nothing'", hint: "" } });
  await until(() => errors.length === 1);
  expect(errors[0]).toMatchObject({ code: "unknown_table" });
});

test("window that failed is not asked for again, until it moves", async () => {
  const { window, errors } = watched({ where: "agee>1" });
  const first = await server.hears("window");
  server.send({ type: "error", id: first.id, error: { code: "bad_where", message: "no column agee", hint: "age" } });
  await until(() => errors.length === 1);
  expect(errors[0]).toMatchObject({ name: "TurnoutError", code: "bad_where", message: "no column agee", hint: "age" });
  window.move({ where: "age>1" });
  expect(await server.hears("window", 2)).toMatchObject({ where: "age>1" });
});

test("window that is closed is unsubscribed, and cannot move", async () => {
  const { window } = watched();
  const { id } = await server.hears("window");
  window.close();
  expect(await server.hears("unsubscribe")).toEqual({ type: "unsubscribe", id });
  expect(() => window.move({ offset: 1 })).toThrow("closed");
});

test("window gives its newest rows to a loop, and is closed with it", async () => {
  const window = client.window<User>({ table: "final_ui" });
  const { id } = await server.hears("window");
  for (let age = 1; age <= 5; age++) server.rows(id, { a: ["u1", age] }, { version: age });
  await until(() => window.info?.version === 5);
  const ages: unknown[] = [];
  for await (const { rows } of window) {
    ages.push(rows[0]!.age);
    if (ages.length === 1) server.rows(id, { a: ["u1", 6] }, { version: 6 });
    else break;
  }
  expect(ages).toEqual([5, 6]);
  await server.hears("unsubscribe");
});

test("window throws its error into a loop", async () => {
  server.answers = () => ({ status: 200, body: { generation: 3 } });
  const window = client.window<User>({ table: "nothing" });
  const { id } = await server.hears("window");
  const loop = (async () => {
    for await (const _ of window);
  })();
  server.send({ type: "error", id, error: { code: "unknown_table", message: "no table nothing", hint: "" } });
  await expect(loop).rejects.toMatchObject({ code: "unknown_table" });
});
