// Rendering on a server: no socket, no call, empty signals, and nothing keeps running.

import "@angular/compiler";
import { Component, inject, provideZonelessChangeDetection } from "@angular/core";
import { bootstrapApplication, type BootstrapContext } from "@angular/platform-browser";
import { renderApplication, provideServerRendering } from "@angular/platform-server";
import { provideTurnout, Turnout, TurnoutSwap } from "@turnout/angular";
import { TurnoutTable } from "@turnout/angular/ag-grid";
import { AgGridAngular } from "ag-grid-angular";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { TestServer } from "../../typescript/tests/server";

@Component({
  selector: "app-page",
  imports: [AgGridAngular, TurnoutTable],
  // AG Grid runs only in browsers.
  template: `<p>{{ turnout.connection().state }}, {{ rows.rows().length }} rows, {{ turnout.tables().length }} tables, {{ swaps.progress() === null }}</p>
    @defer {
      <ag-grid-angular turnoutTable="final_ui" />
    } @placeholder {
      <p>a grid, later</p>
    }`,
})
class Page {
  readonly turnout = inject(Turnout);
  readonly swaps = inject(TurnoutSwap);
  readonly rows = this.turnout.window({ table: "final_ui" });
  readonly groups = this.turnout.summary({ table: "final_ui", by: "accountType" });

  constructor() {
    this.turnout.window$({ table: "final_ui" }).subscribe({ error: fail });
    // Subscriptions of the client itself also make no connection.
    this.turnout.client.window({ table: "final_ui" }, { onError: fail });
    clients.push(this.turnout.client);
  }
}

/** Node's WebSocket, with a count of connections. */
class Counted extends WebSocket {
  static made = 0;

  constructor(url: string, protocols: string[]) {
    super(url, protocols);
    Counted.made += 1;
  }
}

const clients: Turnout["client"][] = [];
let server: TestServer;

function fail(error: unknown): never {
  throw new Error("nothing fails on a server", { cause: error });
}

beforeEach(async () => {
  vi.stubGlobal("WebSocket", Counted);
  server = await TestServer.start();
});

afterEach(() => server.stop());

function rendered(url?: string): Promise<string> {
  const providers = [provideZonelessChangeDetection(), provideServerRendering(), provideTurnout(url === undefined ? {} : { url })];
  const bootstrap = (context: BootstrapContext) => bootstrapApplication(Page, { providers }, context);
  return renderApplication(bootstrap, { document: "<app-page></app-page>", url: `${server.url}/page`, allowedHosts: ["127.0.0.1"] });
}

test.each(["with an address", "without one"])("a page is rendered %s, and no connection is made", async (kind) => {
  expect(globalThis).not.toHaveProperty("document");
  const html = await rendered(kind === "with an address" ? server.url : undefined);
  expect(html).toContain("<p>connecting, 0 rows, 0 tables, true</p>");
  expect(html).toContain("<p>a grid, later</p>");
  expect(Counted.made + server.handshakes + server.calls.length).toBe(0);
  expect(clients.at(-1)!.connection.state).toBe("closed");
});
