// Set the options of a select element. Unchanged options are not replaced, because that would close an open list. A
// chosen value that is not in the list, such as one from a link, is added.

export function setOptions(select: HTMLSelectElement, options: readonly (readonly string[])[], chosen: string): void {
  const known = options.some(([value]) => value === chosen) ? options : [...options, [chosen, chosen]];
  const text = JSON.stringify(known);
  if (select.dataset["options"] !== text) {
    select.dataset["options"] = text;
    select.replaceChildren(...known.map(([value = "", label = value]) => new Option(label, value)));
  }
  if (select.value !== chosen) select.value = chosen;
}
