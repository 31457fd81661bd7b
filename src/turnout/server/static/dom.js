// Small tools for the document. Text goes in by textContent only, and elements are kept rather than made anew.

export const byId = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Makes `parent` hold exactly `count` children, keeping those it has.
export function fit(parent, count, make) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) parent.append(make());
}

export function element(tag, className = "", ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

export function textOf(value, type) {
  if (type === "timestamp") return value.replace("T", " ").replace(/(\.\d{3})\d*Z$/, "$1 Z");
  if (typeof value === "object" && value !== null) return JSON.stringify(value);
  return String(value);
}

export function count(number, noun) {
  return `${number.toLocaleString()} ${noun}${number === 1 ? "" : "s"}`;
}
