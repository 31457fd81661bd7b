// The token of this tab: asked for when the server wants one, kept until the tab is closed, and in no address.

import { byId, setText } from "./dom";
import { hasLogin } from "./login";

const KEY = "turnout.token";
const ENDED = "Your session has ended. Sign in again: you return to this view.";
const WRONG = "The token is wrong. Enter another one above; whoever runs this server has them.";

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
    // Then a reload asks again.
  }
}

function forgetToken(): void {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing was kept.
  }
}

export class TokenPrompt {
  private readonly dialog = byId<HTMLDialogElement>("token");
  private readonly input = byId<HTMLInputElement>("token-text");
  private asked: string | null;
  // Without a token, so by a session.
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
    // There is nothing to see behind it.
    this.dialog.addEventListener("cancel", (event) => event.preventDefault());
  }

  // A refusal of a token that was given is the token's fault; without one, it is only a question.
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

  // A token was given, and its answer is not here yet: too many tries, or a server that went away.
  wait(reason: string): void {
    if (this.dialog.open) this.say(reason);
  }

  private say(problem: string): void {
    setText(byId("token-problem"), problem);
    byId("token-problem").hidden = !problem;
    this.input.setAttribute("aria-invalid", String(problem !== ""));
  }
}
