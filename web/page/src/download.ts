// The rows that are looked at, as a CSV file. Fetched rather than linked: a link cannot carry a token.

import { TurnoutError } from "@turnout/client";
import type { Term } from "./where";

export interface Asked {
  table: string;
  where: (string | Term)[];
  sort: string[];
}

export async function downloadCsv(asked: Asked, token: string | null): Promise<void> {
  const query = new URLSearchParams({ format: "csv" });
  for (const term of asked.where) query.append("where", typeof term === "string" ? term : JSON.stringify([term]));
  for (const key of asked.sort) query.append("sort", key);
  const headers = new Headers(token === null ? {} : { Authorization: `Bearer ${token}` });
  const answer = await fetch(`/api/tables/${encodeURIComponent(asked.table)}/rows?${query}`, { headers });
  if (!answer.ok) throw await errorOf(answer);
  save(await answer.blob(), `${asked.table.replace(/[^\w@.-]/g, "_")}.csv`);
}

async function errorOf(answer: Response): Promise<TurnoutError> {
  const body = (await answer.json().catch(() => null)) as { error?: { code: string; message: string; hint: string } } | null;
  const unknown = { code: "bad_answer", message: `the server answered ${answer.status}`, hint: "" };
  return new TurnoutError(body?.error ?? unknown, answer.status);
}

function save(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
