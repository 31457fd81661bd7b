// The directive with a real grid. This document has no layout and no heights, so scrolling is tested in a browser.

import "./dom";
import { Component, signal } from "@angular/core";
import { type ComponentFixture, TestBed } from "@angular/core/testing";
import { By } from "@angular/platform-browser";
import { provideTurnout } from "@turnout/angular";
import { TurnoutTable } from "@turnout/angular/ag-grid";
import { AgGridAngular } from "ag-grid-angular";
import { type ColDef, ColumnApiModule, type GridApi, type IRowNode, RowSelectionModule } from "ag-grid-community";
import { afterEach, beforeEach, expect, test } from "vitest";
import { TestServer, until } from "../../typescript/tests/server";

interface User {
  userId: string;
  age: number | null;
}

@Component({
  imports: [AgGridAngular, TurnoutTable],
  template: `<ag-grid-angular
    [turnoutTable]="table()"
    [turnoutWhere]="where()"
    [columnDefs]="columns()"
    [modules]="modules"
    [rowSelection]="{ mode: 'multiRow', headerCheckbox: false }"
  />`,
})
class Page {
  readonly table = signal<string | null>("final_ui");
  readonly where = signal("");
  readonly columns = signal<ColDef<User>[] | undefined>(undefined);
  readonly modules = [RowSelectionModule, ColumnApiModule];
}

let server: TestServer;

beforeEach(async () => {
  server = await TestServer.start();
  TestBed.configureTestingModule({ providers: [provideTurnout({ url: server.url })] });
});

afterEach(async () => {
  TestBed.resetTestingModule();
  await server.stop();
});

interface Opened {
  fixture: ComponentFixture<Page>;
  view: TurnoutTable<User>;
  api: GridApi<User>;
  nodes(): IRowNode<User>[];
  ids(): (string | undefined)[];
}

/** Create a page whose grid shows the first rows of the server. */
async function opened(rows: Record<string, unknown[]>, columns?: ColDef<User>[]): Promise<Opened> {
  const fixture = TestBed.createComponent(Page);
  fixture.componentInstance.columns.set(columns);
  document.body.append(fixture.nativeElement as Node);
  await fixture.whenStable();
  const element = fixture.debugElement.query(By.directive(AgGridAngular));
  const { api } = element.componentInstance as AgGridAngular<User>;
  const nodes = (): IRowNode<User>[] => {
    const found: IRowNode<User>[] = [];
    api.forEachNode((node) => found.push(node));
    return found;
  };
  const ids = () => nodes().map(({ id }) => id);
  server.rows((await server.hears("window")).id, rows);
  await until(() => ids().join() === Object.keys(rows).join());
  return { fixture, view: element.injector.get(TurnoutTable) as TurnoutTable<User>, api, nodes, ids };
}

test("grid has a column for each column of the table, and its rows with their ids", async () => {
  const { api, nodes, ids, view } = await opened({ a: ["u1", 40], b: ["u2", null] });
  expect(api.getColumnDefs()).toMatchObject([
    { field: "userId", filter: "agTextColumnFilter" },
    { field: "age", filter: "agNumberColumnFilter" },
  ]);
  expect(ids()).toEqual(["a", "b"]);
  expect(nodes().map(({ data }) => data?.age)).toEqual([40, null]);
  expect(view.info()).toMatchObject({ generation: 1, total: 2 });
  expect(view.rows()).toHaveLength(2);
});

test("a row that changed is updated, so that its cells flash; one that did not is left alone", async () => {
  const { nodes } = await opened({ a: ["u1", 40], b: ["u2", 50] });
  const changes: [string | undefined, boolean][] = [];
  for (const node of nodes()) node.addEventListener("dataChanged", ({ node: { id }, update }) => changes.push([id, update]));
  const { id } = await server.hears("window");
  server.rows(id, { a: ["u1", 41], b: ["u2", 50] }, { version: 2 });
  await until(() => changes.length > 0);
  expect(changes).toEqual([["a", true]]);
  expect(nodes()[0]!.data?.age).toBe(41);
});

test("a swap replaces all rows in one step, and nothing flashes", async () => {
  const { nodes, ids, view } = await opened({ a: ["u1", 40], b: ["u2", 50] });
  const updates: boolean[] = [];
  for (const node of nodes()) node.addEventListener("dataChanged", ({ update }) => updates.push(update));
  const { id } = await server.hears("window");
  server.rows(id, { a: ["x1", 1], y: ["x2", 2] }, { generation: 2 });
  await until(() => view.info()?.generation === 2 && ids().join() === "a,y");
  expect(nodes().map(({ data }) => data?.userId)).toEqual(["x1", "x2"]);
  expect(updates).toEqual([false, false]);
});

test("columns that changed with a generation are those of the grid, with its rows", async () => {
  const { api, nodes, view } = await opened({ a: ["u1", 40] });
  const { id } = await server.hears("window");
  const columns = [{ name: "age", type: "int64" }, { name: "phone", type: "string" }];
  server.rows(id, { a: [41, "+1"] }, { generation: 2, columns });
  await until(() => view.info()?.generation === 2 && nodes()[0]?.data?.age === 41);
  expect(api.getColumnDefs()).toMatchObject([{ field: "age" }, { field: "phone" }]);
  expect(JSON.parse(JSON.stringify(nodes()[0]!.data))).toEqual({ age: 41, phone: "+1" });
});

test("a table grows and shrinks within a block of the grid's cache", async () => {
  const { ids } = await opened({ a: ["u1", 40], b: ["u2", 50] });
  const { id } = await server.hears("window");
  server.rows(id, { c: ["u3", 60], a: ["u1", 40], b: ["u2", 50] }, { version: 2 });
  await until(() => ids().join() === "c,a,b");
  server.rows(id, { b: ["u2", 50] }, { version: 3 });
  await until(() => ids().join() === "b");
  server.rows(id, { a: ["u1", 40], b: ["u2", 50] }, { version: 4 });
  await until(() => ids().join() === "a,b");
});

test("a selection stays with its row when rows come before it", async () => {
  const { api, nodes, ids } = await opened({ a: ["u1", 40], b: ["u2", 50] });
  nodes()[1]!.setSelected(true);
  const { id } = await server.hears("window");
  server.rows(id, { b: ["u2", 50], a: ["u1", 40] }, { version: 2 });
  await until(() => ids().join() === "b,a");
  expect(nodes().map((node) => node.isSelected())).toEqual([true, false]);
  expect(api.getSelectedRows().map(({ userId }) => userId)).toEqual(["u2"]);
});

test("the server sorts and filters; the rows before stay until its answer comes", async () => {
  const { api, ids } = await opened({ a: ["u1", 40], b: ["u2", 50] });
  api.applyColumnState({ state: [{ colId: "age", sort: "desc" }] });
  const sorted = await server.hears("window", 2);
  expect(sorted).toMatchObject({ sort: ["-age"], where: [], offset: 0 });
  await until(() => ids().join() === "a,b");
  server.rows(sorted.id, { b: ["u2", 50], a: ["u1", 40] });
  await until(() => ids().join() === "b,a");

  api.setFilterModel({ age: { filterType: "number", type: "greaterThan", filter: 45 } });
  const filtered = await server.hears("window", 3);
  expect(filtered).toMatchObject({ sort: ["-age"], where: [{ column: "age", op: ">", value: 45 }] });
  server.rows(filtered.id, { b: ["u2", 50] });
  await until(() => ids().join() === "b");

  api.setFilterModel(null);
  expect(await server.hears("window", 4)).toMatchObject({ where: [] });
});

test("columns of one's own stay; a filter that the server does not have is an error, and the rows stay", async () => {
  const own = [{ field: "userId" as const, filter: "agTextColumnFilter" }];
  const { api, ids, view } = await opened({ b: ["u2", 50] }, own);
  expect(api.getColumnDefs()).toHaveLength(1);
  api.setFilterModel({ userId: { filterType: "text", type: "notContains", filter: "u" } });
  await until(() => view.error() !== null);
  expect(view.error()).toMatchObject({ name: "TurnoutError", code: "bad_filter" });
  await until(() => ids().join() === "b");
  api.setFilterModel({ userId: { filterType: "text", type: "contains", filter: "u" } });
  expect(await server.hears("window", 2)).toMatchObject({ where: [{ column: "userId", op: "icontains", value: "u" }] });
  expect(view.error()).toBeNull();
});

test("a condition and the table are inputs; an error keeps the rows", async () => {
  const { fixture, ids, view, api } = await opened({ a: ["u1", 40] });
  fixture.componentInstance.where.set("agee>1");
  const asked = await server.hears("window", 2);
  expect(asked).toMatchObject({ where: ["agee>1"] });
  server.send({ type: "error", id: asked.id, error: { code: "bad_where", message: "no column agee", hint: "fix it" } });
  await until(() => view.error() !== null);
  expect(view.error()).toMatchObject({ code: "bad_where", hint: "fix it" });
  expect(ids()).toEqual(["a"]);
  fixture.componentInstance.table.set(null);
  await until(() => api.getDisplayedRowCount() === 0);
  expect([view.info(), view.error()]).toEqual([null, null]);
});

test("the window ends with its grid", async () => {
  const { fixture } = await opened({ a: ["u1", 40] });
  fixture.destroy();
  await server.hears("unsubscribe");
});
