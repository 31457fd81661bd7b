// The SQL editor: CodeMirror in the page's colours. This module is loaded when the SQL view is first opened.

import { autocompletion, closeBrackets, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { schemaCompletionSource, sql, SQLDialect } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, Prec, StateEffect, StateField } from "@codemirror/state";
import { Decoration, drawSelection, EditorView, keymap, placeholder, type DecorationSet } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { nonce } from "./dom";
import { FUNCTIONS, KEYWORDS, wordsFor, type KnownTable } from "./sql-words";

export interface EditorEvents {
  onChange(text: string): void;
  onRun(): void;
}

const DIALECT = SQLDialect.define({
  keywords: KEYWORDS,
  builtin: FUNCTIONS,
  types: "varchar text integer bigint double float decimal boolean date time timestamp timestamptz blob json",
  doubleDollarQuotedStrings: true,
});

const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.standard(tags.name), tags.typeName], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--warn)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--mark)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
]);

const LOOK = EditorView.theme({
  "&": { backgroundColor: "var(--surface)", color: "var(--text)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", overflow: "auto" },
  ".cm-content": { padding: "8px 14px", caretColor: "var(--text)" },
  ".cm-line": { padding: "0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { background: "var(--accent-soft) !important" },
  ".cm-placeholder": { color: "var(--quiet)" },
  ".cm-matchingBracket": { backgroundColor: "var(--accent-soft) !important", outline: "none" },
  ".cm-tooltip": { border: "1px solid var(--line)", borderRadius: "7px", background: "var(--raised)", color: "var(--text)", boxShadow: "var(--shadow)", overflow: "hidden" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "inherit", maxHeight: "15em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--accent-soft)", color: "var(--accent)" },
  ".cm-completionDetail": { color: "var(--quiet)", fontStyle: "normal", fontSize: "12px" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
});

// Insert text typed over a selection here. A browser would keep the old style by an inline style, which the server's
// Content-Security-Policy refuses.
const OVER_SELECTION = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { main } = view.state.selection;
    const text = event.data;
    if (event.inputType !== "insertText" || !text || main.empty || view.composing) return false;
    const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
    const handlers = view.state.facet(EditorView.inputHandler);
    if (!handlers.some((handle) => handle(view, main.from, main.to, text, insert))) view.dispatch(insert());
    event.preventDefault();
    return true;
  },
});

// The mark of the wrong word, which disappears when the text changes.
const setWrong = StateEffect.define<{ from: number; to: number } | null>();
const WRONG = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, change) {
    const asked = change.effects.find((effect) => effect.is(setWrong));
    if (asked) return asked.value ? Decoration.set(Decoration.mark({ class: "wrong-word" }).range(asked.value.from, asked.value.to)) : Decoration.none;
    return change.docChanged ? Decoration.none : marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});

export class SqlEditor {
  private readonly view: EditorView;
  private readonly language = new Compartment();
  private tables: readonly KnownTable[] = [];

  constructor(host: HTMLElement, text: string, events: EditorEvents) {
    const run = { key: "Mod-Enter", run: () => (events.onRun(), true) };
    const state = EditorState.create({
      doc: text,
      extensions: [
        Prec.highest(keymap.of([run])),
        keymap.of([...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        EditorView.cspNonce.of(nonce()),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": "SQL", "aria-describedby": "sql-problem" }),
        EditorView.updateListener.of((update) => update.docChanged && events.onChange(this.text)),
        history(),
        drawSelection(),
        bracketMatching(),
        closeBrackets(),
        placeholder("select … from …"),
        OVER_SELECTION,
        WRONG,
        syntaxHighlighting(COLOURS),
        LOOK,
        this.language.of(this.support()),
      ],
    });
    this.view = new EditorView({ parent: host, state });
  }

  get text(): string {
    return this.view.state.doc.toString();
  }

  set text(text: string) {
    if (text !== this.text) this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
  }

  setTables(tables: readonly KnownTable[]): void {
    const key = (list: readonly KnownTable[]): string => JSON.stringify(list.map(({ name, columns }) => [name, columns]));
    if (key(tables) === key(this.tables)) return;
    this.tables = tables;
    this.view.dispatch({ effects: this.language.reconfigure(this.support()) });
  }

  // Mark the word at a position, counted from 1; null removes the mark.
  markWrong(position: { line: number; column: number } | null): void {
    const { doc } = this.view.state;
    const line = position && position.line <= doc.lines ? doc.line(position.line) : null;
    const from = line && position ? Math.min(line.from + position.column - 1, line.to) : 0;
    const word = line ? (/^(?:[\p{L}\p{N}_]+|\S)/u.exec(doc.sliceString(from, line.to))?.[0] ?? "") : "";
    this.view.dispatch({ effects: setWrong.of(word ? { from, to: from + word.length } : null) });
  }

  focus(): void {
    this.view.focus();
  }

  private support() {
    const schema = Object.fromEntries(this.tables.map(({ name, columns }) => [name, columns.map((column) => column.name)]));
    const dotted = schemaCompletionSource({ dialect: DIALECT, schema });
    // After a dot, offer only columns of the table before it.
    const source = (context: CompletionContext) =>
      context.matchBefore(/\.\s*[\w"]*$/) ? dotted(context) : this.words(context);
    return [sql({ dialect: DIALECT }).language, autocompletion({ icons: false, override: [source] })];
  }

  private words(context: CompletionContext): CompletionResult | null {
    const found = context.matchBefore(/[\p{L}\p{N}_]*$/u);
    if (!found || (found.from === found.to && !context.explicit)) return null;
    const before = context.state.sliceDoc(0, found.from);
    return { from: found.from, options: wordsFor(this.text, before, this.tables), validFor: /^[\p{L}\p{N}_]*$/u };
  }
}
