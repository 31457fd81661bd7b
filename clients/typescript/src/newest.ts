/** An async iterator that keeps only the newest value: a slow reader skips values and blocks nothing. */
export class Newest<Value> implements AsyncIterator<Value> {
  /** Whether `next` has been called. */
  read = false;
  private value: { readonly is: Value } | null = null;
  private error: { readonly is: unknown } | null = null;
  private over = false;
  private wake: (() => void) | null = null;
  private readonly onReturn: () => void;

  constructor(onReturn: () => void) {
    this.onReturn = onReturn;
  }

  give(value: Value): void {
    this.value = { is: value };
    this.wake?.();
  }

  fail(error: unknown): void {
    this.error = { is: error };
    this.wake?.();
  }

  end(): void {
    this.over = true;
    this.wake?.();
  }

  async next(): Promise<IteratorResult<Value>> {
    this.read = true;
    while (this.value === null && this.error === null && !this.over) {
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    const { value, error } = this;
    this.value = null;
    if (value !== null && !this.over) return { done: false, value: value.is };
    this.error = null;
    if (error !== null) throw error.is;
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<Value>> {
    this.onReturn();
    return { done: true, value: undefined };
  }
}
