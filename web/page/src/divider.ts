// The dividers between the rows and the chart or the open row: dragged, or moved by the arrow keys.

import { element } from "./dom";

const NARROWEST = 20;
const WIDEST = 80;
const STEP = 4;
const PANES: [string, string, number][] = [
  ["chart", "Width of the chart", 46],
  ["sql-chart", "Width of the chart", 46],
  ["row", "Width of the row", 34],
  ["sql-row", "Width of the row", 34],
];

export function startDividers(): void {
  for (const [pane, label, share] of PANES) startDivider(document.getElementById(pane)!, label, share);
}

// Insert a divider before the pane, because the contents of the pane are redrawn.
function startDivider(pane: HTMLElement, label: string, first: number): void {
  const divider = element("div", "divider");
  let share = first;
  const set = (wanted: number): void => {
    share = Math.round(Math.max(NARROWEST, Math.min(WIDEST, wanted)));
    pane.style.setProperty("--share", `${share}%`);
    divider.setAttribute("aria-valuenow", String(share));
  };
  const fixed = { role: "separator", tabindex: "0", "aria-label": label, "aria-orientation": "vertical" };
  const ends = { "aria-valuemin": String(NARROWEST), "aria-valuemax": String(WIDEST), "aria-controls": pane.id };
  for (const [name, value] of Object.entries({ ...fixed, ...ends })) divider.setAttribute(name, value);
  divider.id = `${pane.id}-divider`;
  set(first);
  pane.before(divider);
  divider.addEventListener("pointerdown", ({ pointerId }) => divider.setPointerCapture(pointerId));
  divider.addEventListener("pointermove", ({ pointerId, clientX }) => {
    // A pane to the right of this one, such as a row beside a chart, keeps its width.
    if (!divider.hasPointerCapture(pointerId)) return;
    const { right } = pane.getBoundingClientRect();
    set((100 * (right - clientX)) / (pane.parentElement?.clientWidth ?? 1));
  });
  divider.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: STEP, ArrowRight: -STEP }[event.key];
    if (!step) return;
    set(share + step);
    event.preventDefault();
  });
}
