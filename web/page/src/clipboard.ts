// Copies a text, and says so on the button that was pressed.

import { say, showBriefly } from "./dom";

// The clipboard's own interface is there over https and on this machine only; the event is there always.
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
