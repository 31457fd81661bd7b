// The options of a select. Those that stay are left alone: a list that is open must not close because of a new row. What
// a link names and the list does not have is there too, so that what is shown and what is chosen are the same.

export function setOptions(select: HTMLSelectElement, options: readonly (readonly string[])[], chosen: string): void {
  const known = options.some(([value]) => value === chosen) ? options : [...options, [chosen, chosen]];
  const text = JSON.stringify(known);
  if (select.dataset["options"] !== text) {
    select.dataset["options"] = text;
    select.replaceChildren(...known.map(([value = "", label = value]) => new Option(label, value)));
  }
  if (select.value !== chosen) select.value = chosen;
}
