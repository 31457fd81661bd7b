// The dialog that previews a topic: its columns, derived from records, and the YAML for the file. It changes nothing.

import { TurnoutError, type Status, type TopicExample, type TurnoutClient } from "@turnout/client";
import { copyNow } from "./clipboard";
import { byId, element, setText } from "./dom";
import { count } from "./format";
import { hintOf } from "./problem";
import { topicFields } from "./status";

export class ExampleDialog {
  private readonly client: TurnoutClient;
  private readonly dialog = byId<HTMLDialogElement>("example");
  private readonly topic = byId<HTMLSelectElement>("example-topic");
  private status: Status | null = null;
  // The number of the newest request; answers to older requests are ignored.
  private question = 0;

  constructor(client: TurnoutClient) {
    this.client = client;
    byId("example-open").addEventListener("click", () => void this.open());
    byId("example-close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    this.topic.addEventListener("change", () => void this.look(this.topic.value));
    const copy = byId("example-copy");
    copy.addEventListener("click", () => copyNow(byId("example-yaml").textContent ?? "", copy));
  }

  show(status: Status): void {
    this.status = status;
  }

  private async open(): Promise<void> {
    this.showNothing("Asking Kafka for its topics");
    this.topic.replaceChildren();
    this.dialog.showModal();
    const question = ++this.question;
    await this.answer(question, async () => {
      const topics = await this.client.topics();
      return () => this.showTopics(topics);
    });
    if (question === this.question) this.topic.focus();
  }

  private showTopics(topics: readonly string[]): void {
    const status = this.status;
    const read = new Set(status ? topicFields(status).map((field) => String(status[field])) : []);
    const option = (name: string): HTMLOptionElement => new Option(name, name);
    const none = new Option("choose a topic", "", true, true);
    none.disabled = true;
    const sources = element("optgroup", "", ...topics.filter((name) => read.has(name)).map(option));
    sources.label = "topics of sources";
    this.topic.replaceChildren(none, ...topics.filter((name) => !read.has(name)).map(option), sources);
    this.showNothing("");
  }

  private async look(topic: string): Promise<void> {
    this.showNothing(`Reading the newest records of ${topic}`);
    await this.answer(++this.question, async () => {
      const found = await this.client.example(topic);
      return () => this.showFound(found);
    });
  }

  private async answer(question: number, ask: () => Promise<() => void>): Promise<void> {
    try {
      const show = await ask();
      if (question === this.question) show();
    } catch (error) {
      if (question === this.question) this.showProblem(error);
    }
  }

  private showFound(found: TopicExample): void {
    const looked = found.looked < found.records ? `; the columns of the newest ${count(found.looked, "record")}:` : ":";
    setText(byId("example-said"), `${found.topic} has ${count(found.records, "record")} in ${count(found.partitions, "partition")}${looked}`);
    byId("example-columns").replaceChildren(...found.columns.map((column) => this.row(column, found)));
    setText(byId("example-yaml"), found.yaml);
    byId("example-found").hidden = false;
  }

  private row(column: TopicExample["columns"][number], found: TopicExample): HTMLElement {
    const name = element("th", "", column.name);
    name.scope = "row";
    const isKey = column.name === found.key.value;
    if (isKey) name.append(" ", element("span", "key-mark", "key"));
    const evidence = isKey ? found.key.evidence : column.evidence;
    return element("tr", "", name, element("td", "", element("code", "", column.type)), element("td", "quiet", evidence));
  }

  private showNothing(said: string): void {
    byId("example-found").hidden = true;
    byId("example-problem").hidden = true;
    setText(byId("example-said"), said);
  }

  private showProblem(error: unknown): void {
    const known = error instanceof TurnoutError ? error : null;
    const texts = [known?.message ?? String(error), known ? hintOf(known) : ""].filter(Boolean);
    this.showNothing("");
    byId("example-problem").replaceChildren(...texts.map((text, i) => element("span", i ? "quiet" : "", text)));
    byId("example-problem").hidden = false;
  }
}
