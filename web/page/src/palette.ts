// The colours of lines: a line keeps its colour when its rank changes. Pure.

export class Palette {
  private readonly size: number;
  // The colour of each name, with the most recently used name last.
  private readonly known = new Map<string, number>();

  constructor(size: number) {
    this.size = size;
  }

  // Return different colours for at most `size` names. A new name gets an unused colour, or else that of the least
  // recently used name. New names are served in alphabetical order, so that a reload gives the same colours.
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
