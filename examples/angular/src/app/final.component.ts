import { Component, computed, inject, signal } from '@angular/core';
import { rowId, type WindowOptions } from '@turnout/client';
import { AgGridAngular } from 'ag-grid-angular';
import {
  CellStyleModule,
  ClientSideRowModelModule,
  ColumnApiModule,
  type ColDef,
  type GetRowIdParams,
  HighlightChangesModule,
  ModuleRegistry,
  type SortChangedEvent,
} from 'ag-grid-community';
import { TurnoutService } from './turnout.service';

ModuleRegistry.registerModules([ClientSideRowModelModule, ColumnApiModule, CellStyleModule, HighlightChangesModule]);

interface FinalRow {
  userId: string;
  name: string | null;
  email: string | null;
  age: number | null;
  accountType: string | null;
  balance: number | null;
}

const PAGE = 100;

/** `final_ui` in a grid. The server sorts, filters and pages; the grid only shows the window that it sends. */
@Component({
  selector: 'app-final',
  imports: [AgGridAngular],
  templateUrl: './final.component.html',
  styleUrl: './final.component.css',
})
export class FinalComponent {
  private readonly turnout = inject(TurnoutService);
  private readonly options = signal<WindowOptions>({ table: 'final_ui', offset: 0, limit: PAGE });

  readonly connection = this.turnout.connection;
  readonly status = this.turnout.status;
  readonly view = this.turnout.window<FinalRow>(this.options);
  // The grid wants a list that is its own.
  readonly rows = computed(() => [...this.view.rows()]);
  readonly first = computed(() => this.view.info()?.offset ?? 0);
  readonly last = computed(() => this.first() + this.view.rows().length);
  readonly total = computed(() => this.view.info()?.total ?? 0);

  // The server has sorted already: the grid shows the arrow and keeps the order.
  readonly defaults: ColDef<FinalRow> = { sortable: true, comparator: () => 0, enableCellChangeFlash: true, flex: 1 };
  readonly columns: ColDef<FinalRow>[] = [
    { field: 'userId', headerName: 'userId' },
    { field: 'name', headerName: 'name' },
    { field: 'email', headerName: 'email', flex: 2 },
    { field: 'age', headerName: 'age', type: 'rightAligned' },
    { field: 'accountType', headerName: 'accountType' },
    { field: 'balance', headerName: 'balance', type: 'rightAligned' },
  ];
  readonly idOf = ({ data }: GetRowIdParams<FinalRow>): string => rowId(data);

  sort({ api }: SortChangedEvent<FinalRow>): void {
    const sorted = api.getColumnState().filter((column) => column.sort);
    sorted.sort((one, other) => (one.sortIndex ?? 0) - (other.sortIndex ?? 0));
    this.move({ sort: sorted.map(({ colId, sort }) => (sort === 'desc' ? `-${colId}` : colId)), offset: 0 });
  }

  filter(where: string): void {
    this.move({ where, offset: 0 });
  }

  page(step: -1 | 1): void {
    this.move({ offset: Math.max(0, this.first() + step * PAGE) });
  }

  private move(change: Partial<WindowOptions>): void {
    this.options.update((options) => ({ ...options, ...change }));
  }
}
