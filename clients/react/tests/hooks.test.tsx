import "./dom.js";
import { Activity, act, type ReactNode, StrictMode, useEffect } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  rowId,
  type Status,
  TurnoutError,
  TurnoutProvider,
  type TurnoutProviderProps,
  useConnection,
  useSql,
  useStatus,
  useSummary,
  useSwap,
  useTurnout,
  useWindow,
  type WindowOptions,
} from "@turnout/react";
import { TestServer, until } from "../../typescript/tests/server.js";

interface User {
  userId: string;
  age: number | null;
}

const STATUS = { generation: 1, state: "live", joinType: "left", lastApplied: null, lag: 0, requestId: null };
let server: TestServer;
let root: Root;

beforeEach(async () => {
  server = await TestServer.start();
  root = createRoot(document.createElement("div"));
});

afterEach(async () => {
  await show(null);
  root.unmount();
  await server.stop();
});

/** Render, and run the effects. Later messages of the server are rendered as in an application. */
async function show(children: ReactNode): Promise<void> {
  const flags = globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean };
  flags.IS_REACT_ACT_ENVIRONMENT = true;
  try {
    await act(async () => root.render(children));
  } finally {
    flags.IS_REACT_ACT_ENVIRONMENT = false;
  }
}

function render(children: ReactNode, props: TurnoutProviderProps = {}): Promise<void> {
  return show(<TurnoutProvider url={server.url} {...props}>{children}</TurnoutProvider>);
}

/** A component that records all values of a hook. */
function probe<Value>(hook: () => Value): { seen: Value[]; Probe: () => null; last: () => Value } {
  const seen: Value[] = [];
  const Probe = (): null => {
    const value = hook();
    useEffect(() => void seen.push(value));
    return null;
  };
  return { seen, Probe, last: () => seen.at(-1)! };
}

async function sendStatus(status: Partial<Status> = {}): Promise<void> {
  const { id } = await server.hears("status");
  server.send({ type: "status", id, status: { ...STATUS, ...status } });
}

const counted = (type: string): number => server.asked.filter((message) => message.type === type).length;

test("window follows rows, options and a swap, and ends with its component", async () => {
  let options: WindowOptions | null = { table: "final_ui", where: "age>1", sort: "-age" };
  const users = probe(() => useWindow<User>(options && { ...options }));
  await render(<users.Probe />);
  expect(users.last()).toMatchObject({ rows: [], info: null, error: null });
  const first = await server.hears("window");
  expect(first).toMatchObject({ table: "final_ui", where: "age>1", sort: "-age" });
  server.rows(first.id, { a: ["u1", 40], b: ["u2", 50] });
  await until(() => users.last().rows.length === 2);
  const [one, two] = users.last().rows;
  expect([one!.age, rowId(one!), users.last().info?.total]).toEqual([40, "a", 2]);

  server.rows(first.id, { a: ["u1", 40], b: ["u2", 51] }, { generation: 2 });
  await until(() => users.last().info?.generation === 2);
  expect(users.last().info?.swapped).toBe(true);
  expect(users.last().rows[0]).toBe(one);
  expect(users.last().rows[1]).not.toBe(two);

  options = { table: "final_ui", sort: "-age" };
  await render(<users.Probe />);
  expect(await server.hears("window", 2)).not.toHaveProperty("where");
  expect(users.last().rows).toHaveLength(2);
  options = null;
  await render(<users.Probe />);
  await server.hears("unsubscribe", 2);
  expect(users.last()).toMatchObject({ rows: [], info: null });
  options = { table: "users_ui" };
  await render(<users.Probe />);
  await server.hears("window", 3);
  await render(null);
  await server.hears("unsubscribe", 3);
  expect([counted("window"), server.sockets.size]).toEqual([3, 1]);
});

test("window of another table never shows the rows of the one before", async () => {
  let table = "final_ui";
  const users = probe(() => useWindow<User>({ table }));
  await render(<users.Probe />);
  server.rows((await server.hears("window")).id, { a: ["u1", 40] });
  await until(() => users.last().rows.length === 1);
  table = "users_ui";
  const before = users.seen.length;
  await render(<users.Probe />);
  expect(users.seen.slice(before).flatMap(({ rows }) => rows)).toEqual([]);
  expect(await server.hears("window", 2)).toMatchObject({ table: "users_ui" });
});

test("nothing is rendered again without a change, and what did not change is the same object", async () => {
  const users = probe(() => useWindow<User>({ table: "final_ui" }));
  const status = probe(() => useStatus());
  const generation = probe(() => useStatus((now) => now?.generation));
  const swapping = probe(() => useSwap());
  const all = (
    <>
      <users.Probe />
      <status.Probe />
      <generation.Probe />
      <swapping.Probe />
    </>
  );
  await render(all);
  const { id } = await server.hears("window");
  server.rows(id, { a: ["u1", 40] });
  await sendStatus();
  await until(() => users.last().rows.length === 1 && status.last() !== null);
  const [rows, { reload }] = [users.last().rows, users.last()];
  const renderings = (): number[] => [status, generation, swapping].map(({ seen }) => seen.length);
  const before = renderings();
  await sendStatus();
  server.rows(id, { a: ["u1", 40] }, { version: 2 });
  await until(() => users.last().info?.version === 2);
  expect(users.last().rows).toBe(rows);
  expect(users.last().reload).toBe(reload);
  expect(renderings()).toEqual(before);
  await sendStatus({ lag: 7 });
  await until(() => status.last()?.lag === 7);
  expect(renderings()).toEqual([before[0]! + 1, before[1], before[2]]);
  const asked = server.asked.length;
  const last = [users.last(), status.last(), swapping.last()];
  await render(all);
  expect([users.last(), status.last(), swapping.last()]).toEqual(last);
  expect(users.last()).toBe(last[0]);
  expect(swapping.last()).toBe(last[2]);
  expect(server.asked.length).toBe(asked);
});

test("window keeps its rows when it ends with an error, and goes on", async () => {
  let where = "age>1";
  const users = probe(() => useWindow<User>({ table: "final_ui", where }));
  await render(<users.Probe />);
  const { id } = await server.hears("window");
  server.rows(id, { a: ["u1", 40] });
  await until(() => users.last().rows.length === 1);
  server.send({ type: "error", id, error: { code: "bad_where", message: "no column", hint: "fix it" } });
  await until(() => users.last().error !== null);
  expect(users.last().error).toMatchObject({ name: "TurnoutError", code: "bad_where", hint: "fix it" });
  expect(users.last().rows).toHaveLength(1);
  users.last().reload();
  expect(await server.hears("window", 2)).toMatchObject({ where: "age>1" });
  where = "age>2";
  await render(<users.Probe />);
  server.rows((await server.hears("window", 3)).id, { a: ["u1", 40] });
  await until(() => users.last().error === null);
});

test("strict mode leaves one subscription of each kind and one connection", async () => {
  const users = probe(() => [useWindow<User>({ table: "final_ui" }), useStatus(), useConnection().state] as const);
  await render(
    <StrictMode>
      <users.Probe />
    </StrictMode>,
  );
  await until(() => users.last()[2] === "live");
  const open = (): string[] => {
    const ended = new Set(server.asked.flatMap((message) => (message.type === "unsubscribe" ? [message.id] : [])));
    return server.asked.flatMap((message) => (message.type === "unsubscribe" || ended.has(message.id) ? [] : [message.type]));
  };
  await until(() => open().length === 2);
  expect(open().sort()).toEqual(["status", "window"]);
  const window = server.asked.filter(({ type }) => type === "window").at(-1)!;
  server.rows(window.id, { a: ["u1", 40] });
  await until(() => users.last()[0].rows.length === 1);
  expect([server.sockets.size, server.handshakes]).toEqual([1, 1]);
});

test("a provider that goes closes its connection, and one that comes back has another", async () => {
  const users = probe(() => useWindow<User>({ table: "final_ui" }));
  const become = (mode: "visible" | "hidden"): Promise<void> =>
    show(
      <Activity mode={mode}>
        <TurnoutProvider url={server.url}>
          <users.Probe />
        </TurnoutProvider>
      </Activity>,
    );
  await become("visible");
  await server.hears("window");
  await become("hidden");
  await until(() => server.sockets.size === 0);
  await become("visible");
  const { id } = await server.hears("window", 2);
  server.rows(id, { a: ["u1", 40] });
  await until(() => users.last().rows.length === 1);
  await show(null);
  await until(() => server.sockets.size === 0);
});

test("summary and SQL follow the server too", async () => {
  const types = probe(() => useSummary<{ accountType: string; count: number }>({ table: "final_ui", by: "accountType" }));
  const ages = probe(() => useSql<{ age: number }>({ sql: "SELECT age FROM users_ui" }));
  await render([<types.Probe key="1" />, <ages.Probe key="2" />]);
  const columns = [
    { name: "accountType", type: "string" },
    { name: "count", type: "int64" },
  ];
  const { id } = await server.hears("summary");
  server.send({ type: "summary", id, table: "final_ui", generation: 1, version: 1, by: ["accountType"], columns, groups: [["gold", 3]], total: 1 });
  const sql = await server.hears("sql");
  const rows = { type: "rows" as const, id: sql.id, table: "sql", generation: 1, version: 1, total: 1, offset: 0 };
  server.send({ ...rows, columns: [{ name: "age", type: "int64" }], ids: ["0"], rows: [[7]] });
  await until(() => types.last().rows.length === 1 && ages.last().rows.length === 1);
  expect([types.last().rows[0]!.count, ages.last().rows[0]!.age]).toEqual([3, 7]);
});

test("connection is reconnecting until the server is back, and says why it is refused", async () => {
  const connection = probe(() => useConnection());
  await render(<connection.Probe />, { token: "wrong" });
  await until(() => connection.last().state === "live");
  await server.stop();
  await until(() => connection.last().state === "reconnecting");
  server.refuses = 401;
  await server.listen();
  await until(() => connection.last().state === "refused");
  expect(connection.last()).toMatchObject({ error: { code: "not_authorized", hint: "ask for one" } });
  const states = connection.seen.map(({ state }) => state);
  expect(states.filter((state, index) => state !== states[index - 1])).toEqual(["connecting", "live", "reconnecting", "refused"]);
  server.refuses = null;
  await render(<connection.Probe />, { token: "right" });
  await until(() => connection.last().state === "live");
  expect(server.protocols.at(-1)).toContain(Buffer.from("right").toString("base64url"));
});

test("a function for the token may be another one in each rendering", async () => {
  const connection = probe(() => useConnection());
  for (const token of ["one", "two"]) {
    await render(<connection.Probe />, { token: () => Promise.resolve(token) });
    await until(() => connection.last().state === "live");
  }
  expect(server.handshakes).toBe(1);
  server.hangUp();
  await until(() => server.handshakes === 2 && connection.last().state === "live");
  expect(server.protocols[1]).toContain(Buffer.from("two").toString("base64url"));
});

test("swap answers with the outcome, and its state tells", async () => {
  server.answers = () => ({ status: 200, body: { requestId: null, outcome: "applied", generation: 2 } });
  const swaps = probe(() => useSwap());
  const running = (): boolean => swaps.last().state.state === "running";
  const patient: typeof fetch = (...call) => until(() => server.calls.length > 0 || running()).then(() => fetch(...call));
  await render(<swaps.Probe />, { fetch: patient });
  expect(swaps.last()).toMatchObject({ state: { state: "idle" }, progress: null, allowed: false });
  const { swap, rollback, publish, discard, cancel } = swaps.last();
  const asked = swap({ usersTopic: "users2", joinType: "inner" });
  await until(running);
  expect(await asked).toMatchObject({ outcome: "applied", generation: 2 });
  await until(() => swaps.last().state.state === "done");
  expect(swaps.last().state).toMatchObject({ state: "done", outcome: { generation: 2 } });
  await rollback({ expectedGeneration: 2 });
  await publish({ expectedGeneration: 9 });
  await discard();
  await cancel();
  const [call] = server.calls;
  expect([call!.url, JSON.parse(call!.body)]).toEqual(["/api/control", { usersTopic: "users2", joinType: "inner" }]);
  expect(call!.headers["x-turnout-client"]).toBe("react");
  expect(server.calls.map(({ url }) => url)).toEqual(["/api/control", "/api/rollback", "/api/publish", "/api/discard", "/api/cancel"]);
  expect([swaps.last().swap, swaps.last().rollback, swaps.last().cancel]).toEqual([swap, rollback, cancel]);
  const progress = { generation: 2, state: "catching_up", plan: {}, records: 5, lag: 5, percent: 50 };
  await sendStatus({ progress } as unknown as Partial<Status>);
  await until(() => swaps.last().progress?.percent === 50);
  expect(swaps.last().allowed).toBe(true);
});

test("swap that is refused is an error of the one shape, and so is one that nobody waits for", async () => {
  const error = { code: "unknown_topic", message: "topic 'user' does not exist", hint: "create it" };
  server.answers = () => ({ status: 422, body: { error } });
  const swaps = probe(() => useSwap());
  await render(<swaps.Probe />);
  await expect(swaps.last().swap({ usersTopic: "user" })).rejects.toMatchObject({ ...error, status: 422 });
  await until(() => swaps.last().state.state === "failed");
  expect(swaps.last().state).toMatchObject({ state: "failed", error });
  const asked = swaps.last().swap({ joinType: "inner" });
  const refused = expect(asked).rejects.toMatchObject({ name: "TurnoutError", code: "not_awaited" });
  await render(null);
  await refused;
  await expect(asked).rejects.toBeInstanceOf(TurnoutError);
});

test("only the newest of two swaps shows in the state", async () => {
  server.answers = ({ body }) => ({ status: 200, body: { requestId: null, outcome: "applied", detail: body } });
  const swaps = probe(() => useSwap());
  await render(<swaps.Probe />);
  const { swap } = swaps.last();
  await Promise.all([swap({ joinType: "inner" }), swap({ joinType: "left" })]);
  await until(() => swaps.last().state.state === "done");
  expect(swaps.last().state).toMatchObject({ outcome: { detail: '{"joinType":"left"}' } });
});

test("a hook without a provider says what is missing", async () => {
  const alone = probe(() => useTurnout());
  await expect(show(<alone.Probe />)).rejects.toThrow("put one around the application");
});
