// Copies a text, and says so on the button that was pressed.

import { say } from "./dom";

const SHOWN_MS = 1200;

// The clipboard's own interface is there over https and on this machine only; the event is there always.
export function copyNow(text: string, from: HTMLElement): void {
  const label = from.dataset["label"] ?? from.textContent ?? "";
  from.dataset["label"] = label;
  const onCopy = (event: ClipboardEvent): void => {
    event.clipboardData?.setData("text/plain", text);
    event.preventDefault();
    event.stopPropagation();
  };
  document.addEventListener("copy", onCopy, { capture: true, once: true });
  const done = document.execCommand("copy");
  document.removeEventListener("copy", onCopy, { capture: true });
  from.textContent = done ? "copied" : "not copied";
  say(from.textContent);
  setTimeout(() => (from.textContent = label), SHOWN_MS);
}
