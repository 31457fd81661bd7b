// The default chart of a table: a column with few values, and the width of bins. It queries the server once.

import type { TurnoutClient } from "@turnout/client";
import { niceWidth } from "./bins";
import { candidates, RECORD_TIME, usualChart, type Chart } from "./chart";
import { isTime } from "./column-types";
import { quoted } from "./names";
import type { Column } from "./rows";
import type { Term } from "./where";

export interface Question {
  table: string;
  where: (string | Term)[];
}

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

export async function firstChart(client: TurnoutClient, table: string, columns: readonly Column[]): Promise<Chart> {
  const names = candidates(columns);
  const distinct = new Map<string, number>();
  if (names.length) {
    const values = names.map((name) => `count_distinct(${quoted(name)})`);
    const { groups } = await client.summary({ table, values });
    for (const name of names) distinct.set(name, Number(groups[0]?.[`count_distinct(${name})`] ?? 0));
  }
  return usualChart(columns, distinct);
}

export async function firstWidth(client: TurnoutClient, question: Question, column: Column): Promise<string> {
  const [from, to] = column.name === RECORD_TIME ? await recordTimes(client, question) : await ends(client, question, column);
  return niceWidth(from, to, column.type);
}

async function ends(client: TurnoutClient, question: Question, { name, type }: Column): Promise<[number, number]> {
  const values = [`min(${quoted(name)})`, `max(${quoted(name)})`];
  const { groups } = await client.summary({ ...question, values });
  const read = (value: unknown): number => (isTime(type) ? Date.parse(String(value)) : Number(value));
  const [low, high] = [`min(${name})`, `max(${name})`].map((key) => read(groups[0]?.[key] ?? NaN));
  return Number.isFinite(low) && Number.isFinite(high) ? [low!, high!] : [0, 0];
}

// Find the range of record times. They are not a column, so min() and max() do not exist: bins show the range.
async function recordTimes(client: TurnoutClient, question: Question): Promise<[number, number]> {
  const days = await binned(client, question, "1d", DAY_MS);
  return days[1] - days[0] <= 2 * DAY_MS ? binned(client, question, "1m", MINUTE_MS) : days;
}

async function binned(client: TurnoutClient, question: Question, step: string, width: number): Promise<[number, number]> {
  const by = `${RECORD_TIME}:${step}`;
  const { groups } = await client.summary({ ...question, by, limit: 10_000 });
  const times = groups.map((group) => Date.parse(String(group[by]))).filter((time) => !Number.isNaN(time));
  return times.length ? [times[0]!, times.at(-1)! + width] : [0, 0];
}
