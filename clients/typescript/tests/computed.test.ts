import { afterEach, beforeEach, expect, test } from "vitest";
import { type ChangedRow, connect, type DifferenceInfo, rowId, type SqlInfo, type SummaryInfo, type TurnoutClient, type TurnoutError } from "../src/index.js";
import { TestServer, until } from "./server.js";

interface Kind {
  accountType: string | null;
  count: number;
}

const COLUMNS = [
  { name: "accountType", type: "string" },
  { name: "count", type: "int64" },
];

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

/** Return a summary message of the server. */
function send(id: string, groups: unknown[][], more: object = {}): void {
  const fixed = { type: "summary" as const, id, table: "final_ui", generation: 1, version: 1, by: ["accountType"] };
  server.send({ ...fixed, columns: COLUMNS, groups, total: groups.length, ...more });
}

function point(time: number, count: number) {
  return { time, generation: 1, groups: [["gold", count]] };
}

test("summary gives frozen groups, and the same object for one that did not change", async () => {
  const steps: { rows: readonly Kind[]; info: SummaryInfo }[] = [];
  const options = { table: "final_ui", by: "accountType", values: ["count"], where: "age>=30" };
  const summary = client.liveSummary<Kind>(options, { onRows: (rows, info) => steps.push({ rows, info }) });
  const asked = await server.hears("summary");
  expect(asked).toMatchObject({ ...options, type: "summary" });
  send(asked.id, [["gold", 2], [null, 1]]);
  send(asked.id, [[null, 1], ["gold", 3]], { generation: 2 });
  await until(() => steps.length === 2);
  expect(JSON.parse(JSON.stringify(summary.rows))).toEqual([
    { accountType: null, count: 1 },
    { accountType: "gold", count: 3 },
  ]);
  expect(steps[1]!.rows[0]).toBe(steps[0]!.rows[1]);
  expect(rowId(steps[0]!.rows[0]!)).toBe(rowId(steps[1]!.rows[1]!));
  expect(steps.map(({ info }) => [info.generation, info.total, info.swapped, info.past])).toEqual([
    [1, 2, false, null],
    [2, 2, true, null],
  ]);
});

test("summary keeps its history: points are added, and the last one is replaced", async () => {
  const pasts: SummaryInfo["past"][] = [];
  client.liveSummary({ table: "final_ui", by: "accountType", history: 60 }, { onRows: (_, info) => pasts.push(info.past) });
  const { id, history } = await server.hears("summary");
  expect(history).toBe(60);
  send(id, [["gold", 1]], { history: { seconds: 60, whole: true, points: [point(0, 1), point(1_000, 2)], swaps: [] } });
  const swaps = [{ time: 1_500, generation: 2 }];
  send(id, [["gold", 4]], { history: { seconds: 60, whole: false, points: [point(1_000, 3), point(2_000, 4)], swaps } });
  send(id, [["gold", 5]], { history: { seconds: 60, whole: false, points: [point(61_500, 5)], swaps: [] } });
  await until(() => pasts.length === 3);
  expect(pasts[1]).toEqual({ seconds: 60, points: [point(0, 1), point(1_000, 3), point(2_000, 4)], swaps });
  expect(pasts[2]!.points).toEqual([point(1_000, 3), point(2_000, 4), point(61_500, 5)]);
});

test("summary is asked for again after the connection was lost, and moves", async () => {
  const summary = client.liveSummary({ table: "final_ui" });
  const first = await server.hears("summary");
  server.hangUp();
  const second = await server.hears("summary", 2);
  expect(second).toMatchObject({ ...first, id: second.id });
  summary.move({ by: "age:10" });
  expect(await server.hears("summary", 3)).toMatchObject({ table: "final_ui", by: "age:10" });
});

test("summary that is wrong tells so", async () => {
  const errors: TurnoutError[] = [];
  client.liveSummary({ table: "final_ui", by: "x" }, { onError: (error) => errors.push(error) });
  const { id } = await server.hears("summary");
  server.send({ type: "error", id, error: { code: "bad_by", message: "by: no column 'x'", hint: "columns: name" } });
  await until(() => errors.length === 1);
  expect(errors[0]!.code).toBe("bad_by");
});

test("live SQL gives rows, and whether they are all", async () => {
  const steps: { rows: readonly object[]; info: SqlInfo }[] = [];
  client.liveSql({ sql: "select * from final_ui", limit: 1 }, { onRows: (rows, info) => steps.push({ rows, info }) });
  const { id, live, sql, limit } = await server.hears("sql");
  expect([live, sql, limit]).toEqual([true, "select * from final_ui", 1]);
  const fixed = { type: "rows" as const, id, table: "sql", version: 0, total: 1, offset: 0, columns: COLUMNS };
  server.send({ ...fixed, generation: 1, ids: ["0"], rows: [["gold", 2]], complete: false });
  await until(() => steps.length === 1);
  expect(JSON.parse(JSON.stringify(steps[0]!.rows))).toEqual([{ accountType: "gold", count: 2 }]);
  expect(steps[0]!.info).toMatchObject({ generation: 1, complete: false, swapped: false });
});

test("difference gives rows before and after, goes on with another candidate, and is over without one", async () => {
  const steps: { rows: readonly ChangedRow[]; info: DifferenceInfo }[] = [];
  const errors: TurnoutError[] = [];
  const options = { table: "final_ui", where: "age>=30", limit: 10 };
  client.liveDifference(options, { onRows: (rows, info) => steps.push({ rows, info }), onError: (error) => errors.push(error) });
  const asked = await server.hears("difference");
  expect(asked).toMatchObject({ ...options, type: "difference" });
  const rows = [{ change: "changed" as const, from: { count: 1 }, to: { count: 2 } }];
  const fixed = {
    type: "difference" as const,
    id: asked.id,
    table: "final_ui",
    from: { generation: 1, version: 5, lag: 0 },
    counts: { added: 0, removed: 0, changed: 1, same: 3 },
    total: 1,
    key: ["accountType"],
    columns: [{ name: "count", type: "int64", changed: 1 }],
    columnsOnlyIn: { from: [], to: [] },
    missing: null,
    sinks: [{ sink: "out", records: 1 }],
    rows,
  };
  server.send({ ...fixed, to: { generation: 2, version: 1, lag: 3 } });
  server.send({ ...fixed, to: { generation: 3, version: 1, lag: null }, rows: [] });
  await until(() => steps.length === 2);
  expect(steps[0]!.rows).toEqual(rows);
  expect(steps.map(({ info }) => [info.from.generation, info.generation, info.to.lag, info.swapped])).toEqual([
    [1, 2, 3, false],
    [1, 3, null, true],
  ]);
  const error = { code: "no_candidate", message: "there is no candidate", hint: "make one" };
  server.send({ type: "error", id: asked.id, error });
  await until(() => errors.length === 1);
  expect(errors[0]!.code).toBe("no_candidate");
});

test("calls ask as the server reads", async () => {
  server.answers = () => ({ status: 200, body: { groups: [{ count: 1 }], rows: [{ a: 1 }], saved: [], complete: true } });
  await client.summary({ table: "final_ui", by: ["accountType", "age:10"], values: "count", limit: 5 });
  expect((await client.sql("select 1 as a", { limit: 3 })).rows).toEqual([{ a: 1 }]);
  await client.difference({ table: "final_ui", from: 7, to: 9, change: "added", where: "age>1", sort: "-age", limit: 5 });
  await client.saved();
  await client.save({ name: "gold", table: "final_ui", where: "accountType=gold" });
  await client.unsave("a b");
  expect(server.calls.map((call) => [call.method, call.url, call.body && JSON.parse(call.body)])).toEqual([
    ["GET", "/api/tables/final_ui/summary?by=accountType&by=age%3A10&values=count&limit=5", ""],
    ["POST", "/api/sql", { sql: "select 1 as a", limit: 3 }],
    ["GET", "/api/tables/final_ui/difference?from=7&to=9&change=added&sort=-age&limit=5&where=age%3E1", ""],
    ["GET", "/api/saved", ""],
    ["PUT", "/api/saved/gold", { table: "final_ui", where: "accountType=gold" }],
    ["DELETE", "/api/saved/a%20b", ""],
  ]);
});
