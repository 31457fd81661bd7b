// The token of this browser tab: requested if the server needs one, stored until the tab closes, never in an address.

import { byId, setText } from "./dom";
import { hasLogin } from "./login";

const KEY = "turnout.token";
const ENDED = "Your session has ended. Sign in again: you return to this view.";
const WRONG = "The token is wrong. Enter another one above; the operator of this server can give you one.";

export function storedToken(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function keepToken(token: string): void {
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // The browser refuses storage, so a reload asks again.
  }
}

function forgetToken(): void {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // The browser refuses storage, so there is nothing to remove.
  }
}

export class TokenPrompt {
  private readonly dialog = byId<HTMLDialogElement>("token");
  private readonly input = byId<HTMLInputElement>("token-text");
  private asked: string | null;
  // Whether the page was connected without a token, by a session.
  private wasIn = false;

  constructor(given: string | null, onToken: (token: string) => void) {
    this.asked = given;
    byId("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const token = this.input.value.trim();
      if (!token) return;
      this.asked = token;
      onToken(token);
    });
    if (hasLogin) {
      setText(byId("token-title"), "Sign in");
      byId("sign-in-part").hidden = false;
      byId("token-open").classList.remove("primary");
    }
    // The dialog cannot be closed, because the page has no data yet.
    this.dialog.addEventListener("cancel", (event) => event.preventDefault());
  }

  // Ask for a token; show an error only if a token was given before.
  ask(): void {
    forgetToken();
    this.say(this.asked === null ? "" : WRONG);
    if (!this.dialog.open) this.dialog.showModal();
    if (hasLogin && this.wasIn) setText(byId("sign-in-why"), ENDED);
    if (hasLogin && this.asked === null) byId("sign-in").focus();
    else this.input.select();
  }

  accepted(): void {
    this.wasIn = this.asked === null;
    if (this.asked !== null) keepToken(this.asked);
    this.input.value = "";
    this.say("");
    if (this.dialog.open) this.dialog.close();
  }

  // Show why a given token has no answer yet: too many attempts, or the server is away.
  wait(reason: string): void {
    if (this.dialog.open) this.say(reason);
  }

  private say(problem: string): void {
    setText(byId("token-problem"), problem);
    byId("token-problem").hidden = !problem;
    this.input.setAttribute("aria-invalid", String(problem !== ""));
  }
}
