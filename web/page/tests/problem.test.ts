import { TurnoutError } from "@turnout/client";
import { expect, test } from "vitest";
import { errorPage, problemText } from "../src/problem";

const refused = new TurnoutError({ code: "unknown_topic", message: "topic 'x' does not exist", hint: "create it" }, 422);

test("an error that a server answered has its place in the documentation", () => {
  expect(errorPage(refused)).toBe("/docs/reference/errors.html#unknown_topic");
});

test("an error of the client, or of no server, has none", () => {
  expect(errorPage(new TurnoutError({ code: "no_token", message: "there is no token", hint: "" }, null))).toBeNull();
  expect(errorPage(new Error("broken"))).toBeNull();
});

test("a problem is the message with its hint", () => {
  expect(problemText(refused)).toBe("topic 'x' does not exist; create it");
});
