// Copies a text, and confirms it on the pressed button.

import { say, showBriefly } from "./dom";

// Copy by an event: the Clipboard API exists only over https and on localhost, the copy event always.
export function copyNow(text: string, from: HTMLElement): void {
  const onCopy = (event: ClipboardEvent): void => {
    event.clipboardData?.setData("text/plain", text);
    event.preventDefault();
    event.stopPropagation();
  };
  document.addEventListener("copy", onCopy, { capture: true, once: true });
  const done = document.execCommand("copy");
  document.removeEventListener("copy", onCopy, { capture: true });
  const told = done ? "copied" : "not copied";
  showBriefly(from, told);
  say(told);
}
