// Draws a live table or a live chart of Turnout in a notebook, from the messages of `widgets.py`: every value is a text
// or null. Values are never interpreted as HTML, and nothing is loaded from another host.

const NUMBER = /int|float|double|decimal/;
const LINES = 8;

function make(name, text = null, attributes = {}) {
  const made = document.createElement(name);
  if (text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function draw(name, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function setText(element, text) {
  // Unchanged text is not written again: a selection is kept, and screen readers do not repeat it.
  if (element.textContent !== text) element.textContent = text;
}

const count = (number, one) => `${number.toLocaleString("en-US")} ${one}${number === 1 ? "" : "s"}`;

// -- the heading: table, total, generation and state

function heading() {
  const line = make("div", null, { class: "turnout-head" });
  const [name, total, place] = [make("strong"), make("span"), make("span")];
  const state = make("span", null, { class: "turnout-state", role: "status" });
  line.append(name, total, place, state);
  return {
    line,
    show(shown) {
      setText(name, shown.table);
      const last = shown.offset + shown.rows.length;
      const isPart = shown.rows.length > 0 && shown.rows.length < shown.total;
      const range = `${(shown.offset + 1).toLocaleString("en-US")}–${last.toLocaleString("en-US")} of `;
      setText(total, (isPart ? range : "") + count(shown.total, shown.one));
      setText(place, `generation ${shown.generation}`);
    },
    showState({ state: word, reason }) {
      state.dataset.state = word;
      setText(state, reason ? `${word}: ${reason}` : word);
    },
  };
}

// -- the rows of a table, or the groups of a chart with a bar beside each value

function grid() {
  const frame = make("div", null, { class: "turnout-rows", tabindex: "0", role: "region" });
  const table = make("table");
  const head = make("thead");
  const body = make("tbody");
  table.append(head, body);
  frame.append(table);
  let before = null;
  let rows = new Map();

  function showHead(shown) {
    const names = shown.columns.map((column, place) => {
      const name = make("th", column.name, { scope: "col", title: column.type });
      name.classList.toggle("turnout-number", NUMBER.test(column.type) && !(place < shown.by));
      return name;
    });
    const line = make("tr");
    line.append(...names);
    head.replaceChildren(line);
  }

  function newRow(shown, bars) {
    const line = make("tr");
    for (const [place, column] of shown.columns.entries()) {
      const isName = place < shown.by;
      const cell = make(isName ? "th" : "td", null, isName ? { scope: "row" } : {});
      if (bars[place]) {
        const track = make("span", null, { class: "turnout-track", "aria-hidden": "true" });
        track.append(make("i"));
        cell.className = "turnout-bar";
        cell.append(track);
      } else {
        cell.classList.toggle("turnout-number", NUMBER.test(column.type) && !isName);
      }
      cell.append(make("span"));
      line.append(cell);
    }
    return line;
  }

  function fill(line, texts, old, bars) {
    for (const [place, text] of texts.entries()) {
      const cell = line.children[place];
      const value = cell.lastElementChild;
      setText(value, bars[place]?.text(text) ?? text ?? "null");
      value.title = value.textContent === text && text.length <= 40 ? "" : (text ?? "");
      cell.classList.toggle("turnout-null", text === null);
      bars[place]?.draw(cell, text);
      if (old && old[place] !== text) flash(cell);
    }
  }

  return {
    frame,
    show(shown, colours) {
      frame.setAttribute("aria-label", `${shown.table}, live`);
      const sameColumns = before && JSON.stringify(before.columns) === JSON.stringify(shown.columns);
      if (!sameColumns) {
        showHead(shown);
        rows = new Map();
      }
      // After a swap all rows may differ, so nothing is highlighted.
      const compare = sameColumns && before.generation === shown.generation && shown.by === undefined;
      const bars = shown.columns.map((column, place) => (shown.by <= place ? barsOf(shown, place) : null));
      const kept = new Map();
      for (const [place, texts] of shown.rows.entries()) {
        const id = shown.ids[place];
        const known = rows.get(id);
        const line = known?.line ?? newRow(shown, bars);
        fill(line, texts, compare ? known?.texts : null, bars);
        line.style.setProperty("--turnout-line", colours.get(id) ?? "");
        kept.set(id, { line, texts });
      }
      rows = kept;
      before = shown;
      const lines = [...kept.values()].map((row) => row.line);
      // Only if rows moved: inserting a row again would remove the selection in it.
      if (lines.length !== body.children.length || lines.some((line, place) => body.children[place] !== line))
        body.replaceChildren(...lines);
    },
  };
}

function flash(cell) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  cell.animate([{ backgroundColor: "var(--turnout-flash)" }, { backgroundColor: "transparent" }], {
    duration: 1500,
    easing: "ease-in",
  });
}

// Return functions that draw a column's values: a bar from zero, to the left for negative values, and the number.
function barsOf(shown, place) {
  const { type } = shown.columns[place];
  if (!NUMBER.test(type)) return null;
  const values = shown.rows.map((row) => Number(row[place] ?? 0)).filter(Number.isFinite);
  const low = Math.min(0, ...values);
  const span = Math.max(0, ...values) - low || 1;
  const text = (value) => (value === null ? null : readable(value, type));
  const digits = Math.max(...shown.rows.map((row) => (text(row[place]) ?? "null").length));
  return {
    text,
    draw(cell, value) {
      const number = Number.isFinite(Number(value)) ? Number(value) : 0;
      const bar = cell.firstElementChild.firstElementChild;
      bar.style.width = `${(100 * Math.abs(number)) / span}%`;
      bar.style.left = `${(100 * (Math.min(0, number) - low)) / span}%`;
      bar.hidden = value === null;
      cell.style.width = `${84 / (shown.columns.length - shown.by)}%`;
      cell.style.setProperty("--turnout-digits", digits);
    },
  };
}

// Format a number: integers and decimals with all digits, other numbers rounded.
function readable(text, type = "double") {
  if (/^-?\d+$/.test(text)) return BigInt(text).toLocaleString("en-US");
  const number = Number(text);
  if (type.startsWith("decimal") || !Number.isFinite(number)) return text;
  const digits = Math.abs(number) < 1 ? { maximumSignificantDigits: 3 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 };
  return number.toLocaleString("en-US", digits);
}

// -- line charts: the history of each value, one chart for each

function plots() {
  const frame = make("div", null, { class: "turnout-plots" });
  return {
    frame,
    show(shown, colours) {
      const values = [...shown.columns.keys()].filter((at) => at >= shown.by && NUMBER.test(shown.columns[at].type));
      frame.replaceChildren(...(shown.points.length ? values.map((place) => plot(shown, place, colours)) : []));
    },
  };
}

function plot(shown, place, colours) {
  const { points, swaps, columns, by } = shown;
  const [begin, end] = [points[0].time, points.at(-1).time];
  const x = (time) => (end > begin ? (100 * (time - begin)) / (end - begin) : 0);
  const values = points.map((point) => point.groups.map((group) => group?.[place - by] ?? null));
  const all = values.flat().filter((text) => text !== null).map(Number);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const y = (value) => (high > low ? 94 - (88 * (value - low)) / (high - low) : 50);

  const figure = make("figure");
  const title = `${columns[place].name}${by ? ` by ${columns.slice(0, by).map((column) => column.name).join(", ")}` : ""}`;
  const clock = (time) => new Date(time).toTimeString().slice(0, 8);
  const picture = draw("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img" });
  picture.setAttribute("aria-label", `${title} from ${clock(begin)} to ${clock(end)}; the table below has the values of now`);
  for (const { time, generation } of swaps) {
    // Draw the swap at the last point before it: points are at whole time steps, swaps are not.
    const at = points.findLast((point) => point.time <= time) ?? points[0];
    const mark = draw("path", { d: `M${x(at.time)} 0V100`, class: "turnout-swap" });
    mark.append(draw("title"));
    mark.firstChild.textContent = `generation ${generation}`;
    picture.append(mark);
  }
  for (const [number, colour] of [...colours.values()].entries()) {
    const path = steps(points.map(({ time }, at) => [x(time), values[at][number]]), y);
    const line = draw("path", { d: path, class: "turnout-line" });
    line.style.setProperty("--turnout-line", colour);
    picture.append(line);
  }
  const edge = (name, text) => make("span", text, { class: `turnout-${name}` });
  const edges = all.length ? [edge("high", readable(`${high}`)), edge("low", high > low ? readable(`${low}`) : "")] : [];
  figure.append(make("figcaption", title), picture, ...edges, edge("begin", clock(begin)), edge("end", clock(end)));
  return figure;
}

// Return the path of a step line: a value is valid until the next point; a missing group leaves a gap.
function steps(points, y) {
  let path = "";
  let isDrawn = false;
  for (const [number, [x, text]] of points.entries()) {
    if (text !== null) path += `${isDrawn ? "V" : `M${x} `}${y(Number(text))}H${points[number + 1]?.[0] ?? 100}`;
    isDrawn = text !== null;
  }
  return path;
}

// Return a function that assigns a colour to each group with a line. A group keeps its colour while it is shown.
function palette() {
  let held = new Map();
  return (shown) => {
    const ids = shown.points?.length ? shown.ids.slice(0, LINES) : [];
    const taken = new Set(ids.map((id) => held.get(id)));
    const all = Array.from({ length: LINES }, (_, number) => `var(--turnout-line-${number + 1})`);
    const free = all.filter((colour) => !taken.has(colour));
    held = new Map(ids.map((id) => [id, held.get(id) ?? free.shift()]));
    return held;
  };
}

function render({ model, el }) {
  const root = make("section", null, { class: "turnout", "aria-label": "Turnout" });
  const [top, lines, table, colouring] = [heading(), plots(), grid(), palette()];
  root.append(top.line, lines.frame, table.frame);
  el.append(root);

  const show = () => {
    const shown = model.get("_shown");
    if (!shown.columns) return;
    top.show(shown);
    const colours = colouring(shown);
    if (shown.points) lines.show(shown, colours);
    table.show(shown, colours);
  };
  const showState = () => top.showState(model.get("_state"));
  model.on("change:_shown", show);
  model.on("change:_state", showState);
  show();
  showState();
  // The kernel keeps the subscription open while there are views.
  model.send({ views: 1 });
  return () => {
    model.off("change:_shown", show);
    model.off("change:_state", showState);
    model.send({ views: -1 });
  };
}

export default { render };
