// Downloads of the visible rows. They use fetch(), because a link can send neither a token nor a SELECT.

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
  const answer = await fetched(`/api/tables/${encodeURIComponent(asked.table)}/rows?${query}`, token, {});
  save(await answer.blob(), `${asked.table.replace(/[^\w@.-]/g, "_")}.csv`);
}

export async function downloadSql(sql: string, format: string, limit: number, token: string | null): Promise<void> {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetched("/api/sql", token, { method: "POST", headers, body: JSON.stringify({ sql, format, limit }) });
  save(await answer.blob(), `sql.${format}`);
}

async function fetched(path: string, token: string | null, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  const answer = await fetch(path, { ...init, headers });
  if (!answer.ok) throw await errorOf(answer);
  return answer;
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
