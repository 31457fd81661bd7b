import "./dom";
import { TestBed } from "@angular/core/testing";
import { provideTurnout, TurnoutError, TurnoutSwap } from "@turnout/angular";
import { afterEach, beforeEach, expect, test } from "vitest";
import { TestServer, until } from "../../typescript/tests/server";

let server: TestServer;
let swaps: TurnoutSwap;

beforeEach(async () => {
  server = await TestServer.start();
  TestBed.configureTestingModule({ providers: [provideTurnout({ url: server.url })] });
  swaps = TestBed.inject(TurnoutSwap);
});

afterEach(async () => {
  TestBed.resetTestingModule();
  await server.stop();
});

test("swap answers with the outcome, and its state tells", async () => {
  server.answers = () => ({ status: 200, body: { requestId: null, outcome: "applied", generation: 2 } });
  expect(swaps.state()).toEqual({ state: "idle" });
  const asked = swaps.swap({ usersTopic: "users2", joinType: "inner" });
  expect(swaps.state()).toEqual({ state: "running" });
  expect(await asked).toMatchObject({ outcome: "applied", generation: 2 });
  expect(swaps.state()).toMatchObject({ state: "done", outcome: { generation: 2 } });
  const [call] = server.calls;
  expect([call!.url, JSON.parse(call!.body)]).toEqual(["/api/control", { usersTopic: "users2", joinType: "inner" }]);
  expect(call!.headers["x-turnout-client"]).toBe("angular");
  await swaps.rollback({ expectedGeneration: 2 });
  expect(server.calls[1]!.url).toBe("/api/rollback");
  await swaps.publish({ expectedGeneration: 3 });
  await swaps.discard();
  expect(server.calls.slice(2).map(({ url }) => url)).toEqual(["/api/publish", "/api/discard"]);
});

test("swap that is refused is an error of the one shape, thrown and in its state", async () => {
  const error = { code: "unknown_topic", message: "topic 'user' does not exist", hint: "create it" };
  server.answers = () => ({ status: 422, body: { error } });
  await expect(swaps.swap({ usersTopic: "user" })).rejects.toMatchObject({ name: "TurnoutError", ...error, status: 422 });
  expect(swaps.state()).toMatchObject({ state: "failed", error });
});

test("swap whose answer nobody waits for any more fails in the same shape", async () => {
  const asked = swaps.swap({ joinType: "inner" });
  TestBed.resetTestingModule();
  await expect(asked).rejects.toMatchObject({ name: "TurnoutError", code: "not_awaited" });
  await expect(asked).rejects.toBeInstanceOf(TurnoutError);
});

test("only the newest of two swaps shows in the state", async () => {
  server.answers = ({ body }) => ({ status: 200, body: { requestId: null, outcome: "applied", detail: body } });
  await Promise.all([swaps.swap({ joinType: "inner" }), swaps.swap({ joinType: "left" })]);
  expect(swaps.state()).toMatchObject({ outcome: { detail: '{"joinType":"left"}' } });
});

test("topics, progress and leave come from the server", async () => {
  server.answers = () => ({ status: 200, body: { topics: ["users", "users2"] } });
  expect([swaps.topics(), swaps.progress(), swaps.allowed()]).toEqual([[], null, false]);
  expect(await swaps.loadTopics()).toEqual(["users", "users2"]);
  expect(swaps.topics()).toEqual(["users", "users2"]);
  const { id } = await server.hears("status");
  const progress = { generation: 2, state: "catching_up", plan: {}, records: 5, lag: 5, percent: 50 };
  const candidate = { generation: 9, plan: "users=u2", since: "2026-01-01T00:00:00Z", expiresAt: "2026-01-01T01:00:00Z" };
  expect(swaps.candidate()).toBeNull();
  server.send({ type: "status", id, status: { generation: 1, state: "live", joinType: "left", progress, candidate } });
  await until(() => swaps.progress() !== null);
  expect(swaps.candidate()).toEqual(candidate);
  expect([swaps.progress()?.percent, swaps.allowed()]).toEqual([50, true]);
});
