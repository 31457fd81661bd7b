// The explanation of a row: the records that produced it, and the unused records of its key. A button in the row panel
// requests it; the answer stays until the button is pressed again.

import type { Why, WhyRecord } from "@turnout/client";
import { localText, utcText } from "./clock";
import { button, element, say } from "./dom";
import { count, number, prettyJson } from "./format";
import { problemText } from "./problem";
import { OPERATIONS } from "./tables";

const MAKERS = new Map([
  ["configuration", "the configuration file"],
  ["topic", "a message from the control topic"],
]);

export class WhyPart {
  readonly element = element("section", "why");
  private readonly ask: (table: string, row: string) => Promise<Why>;
  private readonly open: HTMLButtonElement;
  private row: { table: string; id: string; cells: string } | null = null;
  private question = 0;

  constructor(ask: (table: string, row: string) => Promise<Why>) {
    this.ask = ask;
    this.open = button("button small", "Why", () => void this.show());
    this.open.title = "Show the Kafka records that produced this row";
  }

  // Follow the row of the panel; the explanation of another row is removed.
  follow(table: string, generation: number, id: string, cells: string): void {
    const named = table.includes("@") ? table : `${table}@${generation}`;
    const before = this.row;
    this.row = { table: named, id, cells };
    if (before?.id === id && before.table === named) {
      const isOld = before.cells !== cells && this.element.childElementCount > 1;
      if (isOld) this.open.textContent = "Ask again: the row has changed";
      return;
    }
    this.question += 1;
    // Rows of Turnout's own tables have no Kafka records, except bad_records.
    const plain = table.split("@")[0] ?? "";
    this.element.hidden = OPERATIONS.includes(plain) && plain !== "bad_records";
    this.element.replaceChildren(this.open);
    this.open.disabled = false;
    this.open.textContent = "Why";
  }

  private async show(): Promise<void> {
    if (!this.row) return;
    const question = ++this.question;
    this.open.disabled = true;
    this.open.textContent = "Asking …";
    let parts: HTMLElement[];
    try {
      const why = await this.ask(this.row.table, this.row.id);
      parts = partsOf(why);
      say(`The row is made of ${count(why.rows[0]?.records.length ?? 0, "record")}`);
    } catch (error) {
      parts = [element("p", "problem", problemText(error))];
    }
    if (question !== this.question) return;
    this.open.disabled = false;
    this.open.textContent = "Ask again";
    this.element.replaceChildren(this.open, ...parts);
  }
}

function partsOf(why: Why): HTMLElement[] {
  const parts = madeBy(why);
  for (const row of why.rows) {
    parts.push(element("h4", "", "Made of"), ...row.records.map(recordPart));
    if (row.others.length) {
      const more = row.complete ? "" : " or more";
      parts.push(element("h4", "", `Not used: ${number(row.others.length)}${more}`), ...row.others.map(recordPart));
    }
  }
  return [...parts, ...why.notes.map((note) => element("p", "note", note))];
}

function madeBy({ generation, message }: Why): HTMLElement[] {
  if (message === null) return [];
  const maker = MAKERS.get(message.requester) ?? `a message from ${message.requester}`;
  const made = element("p", "quiet", `Generation ${generation} was made by ${maker}`);
  if (message.raw) made.append(element("pre", "", message.raw));
  return [made];
}

function recordPart(record: WhyRecord): HTMLElement {
  const place = `partition ${record.partition}, offset ${number(record.offset)}`;
  const time = element("time", "quiet", localText(record.timestamp));
  time.title = utcText(record.timestamp);
  const top = element("div", "place", element("strong", "", record.topic), element("span", "", place), time);
  if (record.reason !== null) top.append(element("span", "reason", record.reason));
  const part = element("div", record.reason === null ? "record" : "record other", top);
  if (record.gone) part.append(element("p", "quiet", "Kafka no longer has this record"));
  if (record.gone !== false) return part;
  const fields = element("dl", "values");
  if (record.key !== null) fields.append(...field("key", record.key));
  for (const { name, value } of record.headers ?? []) fields.append(...field(`header ${name}`, value ?? "null"));
  const size = record.clipped ? `value, the first part of ${number(record.bytes ?? 0)} bytes` : "value";
  fields.append(...field(size, record.value === null ? "null (a tombstone)" : (prettyJson(record.value) ?? record.value)));
  part.append(fields);
  return part;
}

function field(name: string, text: string): HTMLElement[] {
  return [element("dt", "", name), element("dd", "", element("pre", "", text))];
}
