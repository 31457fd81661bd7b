// Small tools for the document. Text goes in as text nodes only, and elements are kept rather than made anew.

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

// Makes `parent` hold exactly `count` children, keeping those it has, so that focus and selection stay.
export function fit(parent: Element, count: number, make: () => Element): HTMLElement[] {
  while (parent.children.length > count) parent.lastElementChild?.remove();
  while (parent.children.length < count) parent.append(make());
  return [...parent.children] as HTMLElement[];
}

// Tells people who hear the page; what is seen shows it elsewhere.
export function say(text: string): void {
  byId("said").textContent = text;
}

// Shows on a button that what it did is done.
export function showBriefly(on: HTMLElement, text: string): void {
  const before = on.dataset["text"] ?? on.textContent ?? "";
  on.dataset["text"] = before;
  on.textContent = text;
  setTimeout(() => (on.textContent = before), 1500);
}

// The server lets the grid and the editor make their styles by a word that is new for each visit.
export function nonce(): string {
  return document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
}
