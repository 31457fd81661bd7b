// Small DOM functions. Text is inserted only as text nodes, and existing elements are reused.

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = "",
  ...content: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

export function button(className: string, text: string, onClick: (event: MouseEvent) => void): HTMLButtonElement {
  const made = element("button", className, text);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

// Give `parent` exactly `count` children; existing children are reused, so that focus and selection are kept.
export function fit(parent: Element, count: number, make: () => Element): HTMLElement[] {
  while (parent.children.length > count) parent.lastElementChild?.remove();
  while (parent.children.length < count) parent.append(make());
  return [...parent.children] as HTMLElement[];
}

// Announce a text to screen readers.
export function say(text: string): void {
  byId("said").textContent = text;
}

// Show a confirmation on a button for a short time.
export function showBriefly(on: HTMLElement, text: string): void {
  const before = on.dataset["text"] ?? on.textContent ?? "";
  on.dataset["text"] = before;
  on.textContent = text;
  setTimeout(() => (on.textContent = before), 1500);
}

// Return the CSP nonce of this page, with which the grid and the editor may add styles.
export function nonce(): string {
  return document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
}
