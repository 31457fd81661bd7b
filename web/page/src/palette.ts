// Which colour a line has: the one that it had before, whatever its rank is now. Pure.

export class Palette {
  private readonly size: number;
  // From the name to its colour, the one that was seen last at the end.
  private readonly known = new Map<string, number>();

  constructor(size: number) {
    this.size = size;
  }

  // Colours of at most `size` names that are shown together, all different. New names take what nobody has, then what
  // was gone longest; of several, the first in the alphabet takes first, so that a reload shows the same.
  of(names: readonly string[]): number[] {
    const shown = new Set(names);
    const fresh = [...shown].filter((name) => !this.known.has(name)).sort();
    for (const name of fresh) this.known.set(name, this.free(shown));
    for (const name of shown) {
      const colour = this.known.get(name)!;
      this.known.delete(name);
      this.known.set(name, colour);
    }
    return names.map((name) => this.known.get(name)!);
  }

  private free(shown: ReadonlySet<string>): number {
    const taken = new Set(this.known.values());
    const unused = Array.from({ length: this.size }, (_, i) => i).find((colour) => !taken.has(colour));
    if (unused !== undefined) return unused;
    const gone = [...this.known.keys()].find((name) => !shown.has(name));
    const colour = this.known.get(gone ?? "") ?? 0;
    if (gone !== undefined) this.known.delete(gone);
    return colour;
  }
}
