// The popover beside the element that opened it. Escape or a click elsewhere closes it and restores the focus.

import { byId } from "./dom";

const EDGE = 8;
let opener: HTMLElement | null = null;

export function openPopover(anchor: HTMLElement, label: string, content: HTMLElement[]): void {
  const box = byId("popover");
  if (box.matches(":popover-open")) box.hidePopover();
  box.setAttribute("role", "dialog");
  box.setAttribute("aria-label", label);
  box.replaceChildren(...content);
  opener = document.activeElement instanceof HTMLElement ? document.activeElement : anchor;
  box.showPopover();
  place(box, anchor.getBoundingClientRect());
  box.querySelector<HTMLElement>("[autofocus], input, select, button")?.focus();
}

export function closePopover(): void {
  const box = byId("popover");
  if (box.matches(":popover-open")) box.hidePopover();
}

export function startPopover(): void {
  byId("popover").addEventListener("toggle", (event) => {
    if ((event as ToggleEvent).newState === "closed" && (document.activeElement === document.body || !document.activeElement)) {
      opener?.focus();
    }
  });
}

function place(box: HTMLElement, at: DOMRect): void {
  const left = Math.max(EDGE, Math.min(at.left, innerWidth - box.offsetWidth - EDGE));
  const below = at.bottom + 4 + box.offsetHeight <= innerHeight - EDGE;
  const top = below ? at.bottom + 4 : Math.max(EDGE, at.top - 4 - box.offsetHeight);
  box.style.left = `${left}px`;
  box.style.top = `${top}px`;
}
