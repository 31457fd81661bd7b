import { Component, computed, inject } from '@angular/core';
import { Turnout, TurnoutSwap } from '@turnout/angular';

/** Moves the tables to another join, or back. What is shown follows by itself. */
@Component({
  selector: 'app-swap',
  template: `
    <label>
      Join
      <select #join>
        @for (name of joins(); track name) {
          <option [selected]="name === status()?.joinType">{{ name }}</option>
        }
      </select>
    </label>
    <button type="button" [disabled]="!ready()" (click)="swap(join.value)">Swap</button>
    <button type="button" [disabled]="!ready()" (click)="rollback()">Roll back</button>
    <span class="outcome">{{ outcome() }}</span>
  `,
})
export class SwapComponent {
  private readonly service = inject(TurnoutSwap);
  readonly status = inject(Turnout).status;
  readonly joins = computed(() => this.status()?.joins ?? []);
  readonly ready = computed(() => this.service.allowed() && this.service.state().state !== 'running');
  readonly outcome = computed(() => {
    const now = this.service.state();
    const percent = this.service.progress()?.percent;
    if (now.state === 'running') return percent == null ? 'swapping' : `swapping: ${percent} %`;
    if (now.state === 'failed') return `${now.error.message}: ${now.error.hint}`;
    return now.state === 'done' ? now.outcome.outcome : '';
  });

  // A refusal is thrown too; here the state shows it.
  swap(joinType: string): void {
    this.service.swap({ joinType }).catch(() => undefined);
  }

  rollback(): void {
    this.service.rollback().catch(() => undefined);
  }
}
