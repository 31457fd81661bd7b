import { afterEach, beforeEach, expect, test } from "vitest";
import { connect, TurnoutError, type TurnoutClient } from "../src/index.js";
import { TestServer } from "./server.js";

let server: TestServer;
let client: TurnoutClient;

beforeEach(async () => {
  server = await TestServer.start();
  client = connect({ url: server.url, token: "t0ken", client: "dashboard" });
});

afterEach(async () => {
  client.close();
  await server.stop();
});

test("rows asks for a window as the server reads it", async () => {
  server.answers = () => ({ status: 200, body: { table: "a/b@7", rows: [{ userId: "u1" }] } });
  const where = ["name contains \"Bo, b\"", { column: "age", op: ">=", value: 30 }];
  const answer = await client.rows<{ userId: string }>("a/b@7", { where, sort: ["-age", "name"], columns: "userId", limit: 5, offset: 0 });
  expect(answer.rows[0]!.userId).toBe("u1");
  const url = new URL(server.calls[0]!.url, server.url);
  expect(url.pathname).toBe("/api/tables/a%2Fb%407/rows");
  expect(url.searchParams.getAll("where")).toEqual(['name contains "Bo, b"', '[{"column":"age","op":">=","value":30}]']);
  expect(url.searchParams.getAll("sort")).toEqual(["-age", "name"]);
  expect([...url.searchParams.keys()].sort()).toEqual(["columns", "limit", "offset", "sort", "sort", "where", "where"]);
  expect(server.calls[0]!.headers.authorization).toBe("Bearer t0ken");
});

test("control sends the message, under the client's name", async () => {
  server.answers = () => ({ status: 200, body: { requestId: null, outcome: "applied", generation: 2 } });
  expect(await client.control({ usersTopic: "users2", joinType: "inner" })).toMatchObject({ outcome: "applied", generation: 2 });
  await client.control({ usersTopic: "users" }, { wait: false });
  await client.rollback({ expectedGeneration: 2 });
  await client.cancel();
  await client.publish({ expectedGeneration: 3 });
  await client.discard();
  expect(server.calls.map((call) => [call.method, call.url, JSON.parse(call.body)])).toEqual([
    ["POST", "/api/control", { usersTopic: "users2", joinType: "inner" }],
    ["POST", "/api/control?wait=false", { usersTopic: "users" }],
    ["POST", "/api/rollback", { expectedGeneration: 2 }],
    ["POST", "/api/cancel", {}],
    ["POST", "/api/publish", { expectedGeneration: 3 }],
    ["POST", "/api/discard", {}],
  ]);
  expect(server.calls[0]!.headers).toMatchObject({ "content-type": "application/json", "x-turnout-client": "dashboard" });
});

test("reading calls give what is inside the answer", async () => {
  server.answers = ({ url }) => ({
    status: 200,
    body: {
      "/api/tables": { tables: [{ name: "final_ui" }] },
      "/api/topics": { topics: ["users"] },
      "/api/topics/a%2Fb/example": { topic: "a/b" },
      "/api/topics/users/example?records=7": { topic: "users" },
      "/api/swaps": { rows: [{ generation: 1 }] },
      "/api/status": { generation: 1, usersTopic: "users" },
    }[url],
  });
  expect((await client.tables())[0]!.name).toBe("final_ui");
  expect(await client.topics()).toEqual(["users"]);
  expect((await client.example("a/b")).topic).toBe("a/b");
  expect((await client.example("users", 7)).topic).toBe("users");
  expect((await client.swaps())[0]!.generation).toBe(1);
  expect((await client.status())["usersTopic"]).toBe("users");
});

test("errors keep the server's code, message, hint and status", async () => {
  const error = { code: "unknown_topic", message: "no topic users9", hint: "topics: users" };
  server.answers = () => ({ status: 422, body: { error } });
  const thrown = await client.control({ usersTopic: "users9" }).catch((caught: unknown) => caught);
  expect(thrown).toBeInstanceOf(TurnoutError);
  expect(thrown).toMatchObject({ ...error, status: 422 });
});

test("errors of something else than Turnout say so", async () => {
  server.answers = () => ({ status: 502, body: "<html>Bad Gateway</html>" });
  await expect(client.status()).rejects.toMatchObject({ code: "bad_answer", status: 502 });
  server.answers = () => ({ status: 200, body: "<html>Welcome</html>" });
  await expect(client.status()).rejects.toMatchObject({ code: "bad_answer", status: 200 });
});

test("errors of a server that is away name its address", async () => {
  const url = server.url;
  await server.stop();
  await expect(client.status()).rejects.toMatchObject({ code: "server_unreachable", status: null, message: `no answer from ${url}` });
  await server.listen();
});

test("control that is aborted throws what fetch throws", async () => {
  const abort = new AbortController();
  abort.abort();
  await expect(client.control({}, { signal: abort.signal })).rejects.toMatchObject({ name: "AbortError" });
});
