// The page in a frame of another page (`?embed=1`): only the rows or the chart, without controls that change anything.
// The server's setting `embed_origins` lists the allowed sites.

import { toHash, type Place } from "./address";

export const isEmbedded = new URLSearchParams(location.search).get("embed") === "1";

export function startEmbedded(): void {
  document.body.classList.add("embedded");
}

// Show a chart without its rows, and set the link to the whole page.
export function showWholeAddress(place: Place): void {
  const { view, sql } = place;
  document.body.classList.toggle("chart-alone", (sql ? sql.chart : view.chart) !== null);
  for (const link of document.querySelectorAll<HTMLAnchorElement>(".embed-link")) link.href = `/${toHash(place)}`;
}

// Return the HTML that shows an address of this page in a frame.
export function frameOf(address: string): string {
  const url = new URL(address);
  url.search = "?embed=1";
  return `<iframe src="${url.href.replaceAll("&", "&amp;").replaceAll('"', "&quot;")}" width="100%" height="420" style="border: 0" title="Turnout"></iframe>`;
}
