// Signing in at the identity provider, where the server has one: the way there, who somebody is, and the way out.

import type { TurnoutClient as Client } from "@turnout/client";
import { byId, setText } from "./dom";

const MOST_CHARACTERS = 2000;

export const hasLogin = document.querySelector<HTMLMetaElement>('meta[name="login"]')?.content === "yes";

// The address leads back to what is looked at; a very long one (a SELECT) is left behind, and the editor still has it.
export function signIn(): void {
  const here = (location.pathname + location.search + location.hash).replaceAll("\\", "%5C");
  location.assign(`/login?next=${encodeURIComponent(here.length > MOST_CHARACTERS ? "/" : here)}`);
}

export function startLogin(): void {
  byId("sign-in").addEventListener("click", signIn);
  byId("sign-out").addEventListener("click", () => void signOut());
}

// The name of who has signed in, and nothing where a token was given.
export async function showPerson(client: Client): Promise<void> {
  if (!hasLogin) return;
  const who = await client.me().catch(() => null);
  const isPerson = who?.by === "session";
  setText(byId("person"), isPerson ? who.name : "");
  byId("person").title = isPerson ? `${who.role}, ${who.subject ?? ""}` : "";
  byId("person").hidden = byId("sign-out").hidden = !isPerson;
}

// The issuer ends its own session at the address that the server answers, or the next sign-in would ask nothing.
async function signOut(): Promise<void> {
  const answer = await fetch("/logout", { method: "POST" }).catch(() => null);
  const out = answer?.ok ? ((await answer.json()) as { url: string }).url : "/";
  location.assign(out);
}
