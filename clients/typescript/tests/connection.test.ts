import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connect, type ConnectionState, type Status, type TurnoutClient, type TurnoutError, type WindowSubscription } from "../src/index.js";
import { FIRST_DELAY_MS } from "../src/connection.js";
import { TestServer, until } from "./server.js";

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

function states(of: TurnoutClient): string[] {
  const seen: string[] = [];
  of.onConnection(({ state }) => seen.push(state));
  return seen;
}

describe("connection", () => {
  test("opens with the first subscription, and one socket serves all", async () => {
    const seen = states(client);
    expect(server.handshakes).toBe(0);
    client.window({ table: "users_ui" });
    client.window({ table: "final_ui" });
    await server.hears("window", 2);
    expect(seen).toEqual(["idle", "connecting", "live"]);
    expect(server.protocols).toEqual(["turnout"]);
    expect(client.connection).toEqual({ state: "live", server: "turnout test", role: "operator", sql: false });
  });

  test("gives its token as a subprotocol", async () => {
    const other = connect({ url: `${server.url}/`, token: "s3cret/ü?" });
    other.window({ table: "users_ui" });
    await server.hears("window");
    const given = server.protocols[0]!.split(",").map((name) => name.trim());
    expect(given[0]).toBe("turnout");
    expect(Buffer.from(given[1]!.replace("turnout.token.", ""), "base64url").toString()).toBe("s3cret/ü?");
    expect(given[1]).toMatch(/^turnout\.token\.[A-Za-z0-9_-]+$/);
    other.close();
  });

  test("asks a function for the token of each connection and each call", async () => {
    let turn = 0;
    const other = connect({ url: server.url, token: () => Promise.resolve(`token-${++turn}`) });
    other.onStatus(() => undefined);
    await until(() => server.protocols.length === 1);
    await other.tables().catch(() => undefined);
    expect(server.calls[0]!.headers.authorization).toBe("Bearer token-2");
    server.hangUp();
    await until(() => server.protocols.length === 2);
    const given = server.protocols.map((text) => Buffer.from(text.split("turnout.token.")[1]!, "base64url").toString());
    expect(given).toEqual(["token-1", "token-3"]);
    other.close();
  });

  test("tries again later when the function for the token fails", async () => {
    let failing = true;
    const token = (): string => {
      if (failing) throw new Error("not signed in");
      return "t0ken";
    };
    const other = connect({ url: server.url, token });
    other.onStatus(() => undefined);
    expect(other.connection).toMatchObject({ state: "away", reason: expect.stringContaining("not signed in") });
    await expect(other.tables()).rejects.toMatchObject({ name: "TurnoutError", code: "no_token" });
    expect(server.handshakes + server.calls.length).toBe(0);
    failing = false;
    await until(() => other.connection.state === "live");
    other.close();
  });

  test("does not connect with a token that comes after close", async () => {
    let give = (_: string): void => undefined;
    const other = connect({ url: server.url, token: () => new Promise<string>((resolve) => (give = resolve)) });
    other.onStatus(() => undefined);
    other.close();
    give("late");
    await new Promise((resolve) => setTimeout(resolve));
    expect(other.connection.state).toBe("closed");
    expect(server.handshakes).toBe(0);
  });

  test("comes back after a restart of the server, by itself", async () => {
    const seen = states(client);
    client.window({ table: "users_ui" });
    await server.hears("window");
    await server.stop();
    await until(() => client.connection.state === "away");
    const away = client.connection as Extract<ConnectionState, { state: "away" }>;
    expect(away.retryAt).toBeGreaterThan(0);
    expect(away.reason).not.toBe("");
    await server.listen();
    await server.hears("window", 2);
    expect(seen.slice(0, 4)).toEqual(["idle", "connecting", "live", "away"]);
    expect(seen.slice(-2)).toEqual(["connecting", "live"]);
  });

  test("says why the server closed it", async () => {
    client.window({ table: "users_ui" });
    await server.hears("window");
    server.hangUp(4408);
    await until(() => client.connection.state === "away");
    expect(client.connection).toMatchObject({ reason: "the server stops" });
  });

  test.each([401, 403])("does not try again after %i, until it is told to", async (status) => {
    server.refuses = status;
    const errors: TurnoutError[] = [];
    client.window({ table: "users_ui" }, { onError: (error) => errors.push(error) });
    await until(() => client.connection.state === "refused");
    const { error } = client.connection as Extract<ConnectionState, { state: "refused" }>;
    expect(error).toMatchObject({ code: "not_authorized", status, hint: "ask for one" });
    await until(() => errors.length > 0);
    expect(errors).toEqual([error]);
    // Longer than the first pause before another try. (Node itself asks twice after 401.)
    const { handshakes } = server;
    await new Promise((resolve) => setTimeout(resolve, 1.2 * FIRST_DELAY_MS));
    expect(server.handshakes).toBe(handshakes);
    expect(server.calls.map((call) => call.url)).toEqual(["/api/status"]);

    const late: string[] = [];
    const window: WindowSubscription = client.window({ table: "users_ui" }, { onError: ({ code }) => late.push(code, String(window.rows.length)) });
    expect(late).toEqual([]);
    await until(() => late.length === 2);

    server.refuses = null;
    client.reconnect({ token: "known" });
    await server.hears("window");
    expect(server.protocols[0]).toContain("turnout.token.");
  });

  test("tries again after a refusal that may pass", async () => {
    server.refuses = 503;
    client.window({ table: "users_ui" });
    await until(() => server.handshakes >= 2);
    server.refuses = null;
    await server.hears("window");
    expect(client.connection.state).toBe("live");
  });

  test("reconnect does not wait for the next try", async () => {
    client.window({ table: "users_ui" });
    await server.hears("window");
    server.hangUp();
    await until(() => client.connection.state === "away");
    client.reconnect();
    expect(client.connection.state).toBe("connecting");
    await server.hears("window", 2);
  });

  test("asks once for what a listener subscribes when it becomes live", async () => {
    client.onConnection(({ state }) => {
      if (state === "live") client.window({ table: "final_ui" });
    });
    client.window({ table: "users_ui" });
    await server.hears("window", 2);
    client.onStatus(() => undefined);
    await server.hears("status");
    expect(server.asked.map((message) => message.type)).toEqual(["window", "window", "status"]);
  });

  test("a closed client sends nothing more and takes no subscription", async () => {
    const seen = states(client);
    client.window({ table: "users_ui" });
    await server.hears("window");
    client.close();
    await until(() => server.sockets.size === 0);
    expect(seen.at(-1)).toBe("closed");
    expect(() => client.window({ table: "users_ui" })).toThrow("closed");
    expect(server.handshakes).toBe(1);
  });

  test("refuses to send what the server would close the connection for", async () => {
    const errors: TurnoutError[] = [];
    client.window({ table: "users_ui", where: "ü".repeat(40_000) }, { onError: (error) => errors.push(error) });
    await until(() => errors.length === 1);
    expect(errors[0]!.code).toBe("message_too_large");
    expect(server.asked).toEqual([]);
    expect(client.connection.state).toBe("live");
  });

  test("ignores messages of a newer server", async () => {
    const window = client.window({ table: "users_ui" });
    const { id } = await server.hears("window");
    server.send({ type: "weather", id } as never);
    server.rows(id, { a: ["u1", 1] });
    await until(() => window.rows.length === 1);
  });
});

describe("status", () => {
  test("is subscribed once for all listeners, and left with the last", async () => {
    const seen: [string, Status][] = [];
    const leave = client.onStatus((status) => seen.push(["first", status]));
    const { id } = await server.hears("status");
    server.send({ type: "status", id, status: { generation: 3, state: "live" } });
    await until(() => seen.length === 1);
    const leaveToo = client.onStatus((status) => seen.push(["second", status]));
    expect(seen.map(([name]) => name)).toEqual(["first", "second"]);
    expect(seen[1]![1].generation).toBe(3);
    leave();
    leaveToo();
    leaveToo();
    expect(await server.hears("unsubscribe")).toEqual({ type: "unsubscribe", id });
    expect(server.asked.length).toBe(2);
  });
});

test("connect wants an address it can use", () => {
  expect(() => connect()).toThrow("address");
  expect(() => connect({ url: "ws://127.0.0.1:1" })).toThrow("not an http");
});
