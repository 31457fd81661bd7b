// The menu of saved views: those that operators save on the server for everybody, and those of this browser.

import { type SavedView, type TurnoutClient } from "@turnout/client";
import { copyNow } from "./clipboard";
import { button, byId, element, say, showBriefly } from "./dom";
import { frameOf } from "./embed";
import { closePopover, openPopover } from "./popover";
import { problemText } from "./problem";
import { isSaved } from "./saved";

const KEY = "turnout.views";
const LONGEST_NAME = 64;

export interface SavedEvents {
  // Return the current view under a name.
  make(name: string): SavedView;
  onOpen(saved: SavedView): void;
}

export class SavedMenu {
  private readonly client: TurnoutClient;
  private readonly events: SavedEvents;
  private readonly input = element("input");
  private readonly problem = element("p", "bad small");
  private readonly lists = element("div", "saved-lists");
  private anchor = byId("views");

  constructor(client: TurnoutClient, events: SavedEvents) {
    this.client = client;
    this.events = events;
    this.input.maxLength = LONGEST_NAME;
    this.input.required = true;
    this.problem.setAttribute("role", "alert");
    for (const id of ["views", "sql-saved"]) byId(id).addEventListener("click", () => this.open(byId(id)));
  }

  open(anchor = byId("views")): void {
    this.anchor = anchor;
    const form = element("form", "filter-form");
    form.autocomplete = "off";
    const keeps = element("small", "quiet", this.isOperator ? "saved on the server, for everybody" : "saved in this browser, for you");
    const what = anchor.id === "sql-saved" ? "statement" : "view";
    this.input.placeholder = `name of this ${what}`;
    this.input.setAttribute("aria-label", `Name of this ${what}`);
    form.append(this.input, element("div", "actions", element("button", "button primary", `Save ${what}`)), keeps);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.try(() => this.save(this.input.value.trim()));
    });
    this.input.value = "";
    this.problem.textContent = "";
    openPopover(anchor, "Saved views", [form, this.problem, this.lists, links()]);
    void this.try(() => this.show());
  }

  private get isOperator(): boolean {
    const { connection } = this.client;
    return connection.state === "live" && connection.role === "operator";
  }

  private async save(name: string): Promise<void> {
    if (!name) return;
    const view = this.events.make(name);
    if (this.isOperator) await this.client.save(view);
    else keep([...kept().filter((one) => one.name !== name), view]);
    closePopover();
    showBriefly(this.anchor, "Saved ✓");
    say(`${name} is saved`);
  }

  private async show(): Promise<void> {
    const ours = await this.client.saved();
    const remove = async ({ name }: SavedView): Promise<void> => this.client.unsave(name);
    const groups = [
      this.group("On the server", ours, this.isOperator ? remove : null),
      this.group("In this browser", kept(), async ({ name }) => keep(kept().filter((one) => one.name !== name))),
    ].filter((group) => group !== null);
    this.lists.replaceChildren(...(groups.length ? groups : [element("p", "quiet small", "No view is saved yet.")]));
  }

  private group(title: string, views: readonly SavedView[], remove: ((view: SavedView) => Promise<void>) | null): HTMLElement | null {
    if (!views.length) return null;
    const list = element("ul");
    list.setAttribute("aria-label", title);
    for (const view of views) {
      const open = button("menu-item", "", () => {
        closePopover();
        this.events.onOpen(view);
      });
      open.append(element("span", "", view.name), element("small", "quiet", view.sql ? "SQL" : view.table));
      const item = element("li", "", open);
      if (remove) {
        const gone = button("button icon plain", "✕", () => void this.try(() => this.remove(view, remove)));
        gone.setAttribute("aria-label", `Remove the view ${view.name}`);
        item.append(gone);
      }
      list.append(item);
    }
    return element("section", "saved", element("h3", "", title), list);
  }

  private async remove(view: SavedView, remove: (view: SavedView) => Promise<void>): Promise<void> {
    await remove(view);
    say(`View ${view.name} is removed`);
    await this.show();
    this.input.focus();
  }

  private async try(act: () => Promise<void>): Promise<void> {
    try {
      this.problem.textContent = "";
      await act();
    } catch (error) {
      this.problem.textContent = problemText(error);
    }
  }
}

// Return buttons that copy the address of the current view, and the HTML that shows it on another page.
function links(): HTMLElement {
  const link = button("button small", "Copy link", () => copyNow(location.href, link));
  const frame = button("button small", "Copy frame", () => copyNow(frameOf(location.href), frame));
  frame.title = "The HTML that shows this on another page; server.embed_origins lists the allowed sites";
  return element("div", "actions links", link, frame);
}

function kept(): SavedView[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter(isSaved) : [];
  } catch {
    return [];
  }
}

function keep(views: SavedView[]): void {
  const sorted = [...views].sort((one, other) => (one.name < other.name ? -1 : 1));
  if (sorted.length) localStorage.setItem(KEY, JSON.stringify(sorted));
  else localStorage.removeItem(KEY);
}
