// The quality of the joins as bars: for each view, the share of rows with a match.

import { element } from "./dom";
import { number, percent } from "./format";
import type { Rows } from "./rows";

export interface Quality {
  view: string;
  leftRows: number;
  rightRows: number;
  matched: number;
  unmatchedLeft: number;
  unmatchedRight: number;
  duplicateRightKeys: number;
  nullKeys: number;
  leftOutKeys: number;
}

type Bars = [label: string, part: (quality: Quality) => number, whole: (quality: Quality) => number];

const MATCHED: Bars[] = [
  ["Left rows with a match", ({ leftRows, unmatchedLeft }) => leftRows - unmatchedLeft, ({ leftRows }) => leftRows],
  ["Right rows with a match", ({ rightRows, unmatchedRight }) => rightRows - unmatchedRight, ({ rightRows }) => rightRows],
];

// Compare the joins of two generations, view by view.
export function compareQuality(panel: HTMLElement, now: readonly Quality[], then: readonly Quality[]): void {
  const views = [...new Set([...now, ...then].map(({ view }) => view))];
  const heads = ["", "now", "candidate"].map((text) => element("th", "", text));
  for (const head of heads) head.scope = "col";
  const lines = views.flatMap((view) => {
    const sides = [now, then].map((found) => found.find((quality) => quality.view === view));
    return MATCHED.map(([label, part, whole]) => {
      const name = element("th", "", views.length > 1 ? `${view}: ${label.toLowerCase()}` : label);
      name.scope = "row";
      const cells = sides.map((quality) => element("td", "", ...(quality ? share(part(quality), whole(quality)) : ["no such view"])));
      return element("tr", "", name, ...cells);
    });
  });
  panel.replaceChildren(element("table", "compared", element("thead", "", element("tr", "", ...heads)), element("tbody", "", ...lines)));
}

function share(part: number, whole: number): HTMLElement[] {
  return [element("strong", "", percent(part, whole)), element("small", "quiet", `${number(part)} of ${number(whole)}`)];
}

export function showQuality(panel: HTMLElement, { columns, rows }: Pick<Rows, "columns" | "rows">): void {
  const found = rows.map((row) => Object.fromEntries(columns.map(({ name }, i) => [name, row[i]])) as unknown as Quality);
  panel.replaceChildren(...found.map(card));
}

function card(quality: Quality): HTMLElement {
  const { view, unmatchedLeft, unmatchedRight, duplicateRightKeys, nullKeys, leftOutKeys } = quality;
  const made = element("section", "card");
  made.append(
    element("h3", "", view),
    ...MATCHED.map(([label, part, whole]) => bar(label, part(quality), whole(quality))),
  );
  const facts = element("dl", "facts");
  facts.append(
    ...fact("matched rows", quality.matched, ""),
    ...fact("left rows without a match", unmatchedLeft, ""),
    ...fact("right rows without a match", unmatchedRight, ""),
    ...fact("duplicate right keys", duplicateRightKeys, "only the newest is used, unless duplicates: all"),
    ...fact("null keys", nullKeys, "these never match"),
    ...fact("keys left out", leftOutKeys, "they would have more rows than max_rows_per_key"),
  );
  made.append(facts);
  return made;
}

function bar(label: string, part: number, whole: number): HTMLElement {
  const meter = element("div", "meter");
  meter.setAttribute("role", "img");
  meter.setAttribute("aria-label", `${label}: ${number(part)} of ${number(whole)}, ${percent(part, whole)}`);
  const fill = element("div", "fill");
  fill.style.width = `${whole > 0 ? (100 * part) / whole : 0}%`;
  meter.append(fill);
  const text = element("div", "meter-text", element("span", "", label), element("strong", "", percent(part, whole)));
  const of = element("small", "quiet", `${number(part)} of ${number(whole)}`);
  return element("div", "measure", text, meter, of);
}

function fact(label: string, value: number, why: string): HTMLElement[] {
  const term = element("dt", "", label);
  if (why) term.append(element("small", "quiet", why));
  return [term, element("dd", "", number(value))];
}
