import { Component, computed, inject, signal } from '@angular/core';
import { Turnout } from '@turnout/angular';
import { TurnoutTable } from '@turnout/angular/ag-grid';
import { AgGridAngular } from 'ag-grid-angular';
import type { ColDef } from 'ag-grid-community';
import { SwapComponent } from './swap.component';

interface AccountTypes {
  accountType: string | null;
  count: number;
}

/** `final_ui` in a grid that the server sorts and filters, with the swap beside it. */
@Component({
  selector: 'app-root',
  imports: [AgGridAngular, SwapComponent, TurnoutTable],
  templateUrl: './final.component.html',
  styleUrl: './final.component.css',
})
export class FinalComponent {
  private readonly turnout = inject(Turnout);

  readonly connection = this.turnout.connection;
  readonly status = this.turnout.status;
  readonly where = signal('');
  readonly defaults: ColDef = { flex: 1 };
  readonly types = this.turnout.summary<AccountTypes>(() => ({
    table: 'final_ui',
    by: 'accountType',
    where: this.where(),
    sort: '-count',
    limit: 5,
  }));
  readonly typesText = computed(() =>
    this.types
      .rows()
      .map(({ accountType, count }) => `${accountType ?? 'none'} ${count}`)
      .join(', '),
  );
}
