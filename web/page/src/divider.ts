// The line between the rows and the chart: dragged, or moved by the arrow keys.

import { byId } from "./dom";

const NARROWEST = 20;
const WIDEST = 80;
const STEP = 4;

export function startDivider(): void {
  const divider = byId("chart-divider");
  const pane = byId("chart");
  let share = Number(divider.getAttribute("aria-valuenow"));
  const set = (wanted: number): void => {
    share = Math.round(Math.max(NARROWEST, Math.min(WIDEST, wanted)));
    pane.style.setProperty("--share", `${share}%`);
    divider.setAttribute("aria-valuenow", String(share));
  };
  divider.addEventListener("pointerdown", ({ pointerId }) => divider.setPointerCapture(pointerId));
  divider.addEventListener("pointermove", ({ pointerId, clientX }) => {
    const whole = pane.parentElement?.getBoundingClientRect();
    if (whole && divider.hasPointerCapture(pointerId)) set((100 * (whole.right - clientX)) / whole.width);
  });
  divider.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: STEP, ArrowRight: -STEP }[event.key];
    if (!step) return;
    set(share + step);
    event.preventDefault();
  });
}
