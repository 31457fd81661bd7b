// The page inside a frame of another page (`?embed=1`): the rows or the chart alone, and nothing that changes anything.
// The server says whose pages may have it there.

import { toHash, type Place } from "./address";

export const isEmbedded = new URLSearchParams(location.search).get("embed") === "1";

export function startEmbedded(): void {
  document.body.classList.add("embedded");
}

// A chart is shown without its rows; the link leads to the whole page.
export function showWholeAddress(place: Place): void {
  const { view, sql } = place;
  document.body.classList.toggle("chart-alone", (sql ? sql.chart : view.chart) !== null);
  for (const link of document.querySelectorAll<HTMLAnchorElement>(".embed-link")) link.href = `/${toHash(place)}`;
}

// The HTML that shows an address of this page on another page.
export function frameOf(address: string): string {
  const url = new URL(address);
  url.search = "?embed=1";
  return `<iframe src="${url.href.replaceAll("&", "&amp;").replaceAll('"', "&quot;")}" width="100%" height="420" style="border: 0" title="Turnout"></iframe>`;
}
