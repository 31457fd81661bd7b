// Sign-in and sign-out at the identity provider, if the server has one, and the name of the user.

import type { TurnoutClient as Client } from "@turnout/client";
import { byId, setText } from "./dom";

const MOST_CHARACTERS = 2000;

export const hasLogin = document.querySelector<HTMLMetaElement>('meta[name="login"]')?.content === "yes";

// Go to the sign-in, and return to this address. A very long address (a SELECT) is dropped; the editor keeps its text.
export function signIn(): void {
  const here = (location.pathname + location.search + location.hash).replaceAll("\\", "%5C");
  location.assign(`/login?next=${encodeURIComponent(here.length > MOST_CHARACTERS ? "/" : here)}`);
}

export function startLogin(): void {
  byId("sign-in").addEventListener("click", signIn);
  byId("sign-out").addEventListener("click", () => void signOut());
}

// Show the name of the signed-in user; nothing if a token was used.
export async function showPerson(client: Client): Promise<void> {
  if (!hasLogin) return;
  const who = await client.me().catch(() => null);
  const isPerson = who?.by === "session";
  setText(byId("person"), isPerson ? who.name : "");
  byId("person").title = isPerson ? `${who.role}, ${who.subject ?? ""}` : "";
  byId("person").hidden = byId("sign-out").hidden = !isPerson;
}

// Sign out, also at the issuer by the address that the server returns; otherwise the next sign-in would ask nothing.
async function signOut(): Promise<void> {
  const answer = await fetch("/logout", { method: "POST" }).catch(() => null);
  const out = answer?.ok ? ((await answer.json()) as { url: string }).url : "/";
  location.assign(out);
}
