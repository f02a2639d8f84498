// An editor for Python whose margin shows findings beside the line that they are about.
import { basicSetup } from "codemirror"
import { indentWithTab } from "@codemirror/commands"
import { python } from "@codemirror/lang-python"
import { HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language"
import { lintGutter, setDiagnostics } from "@codemirror/lint"
import { EditorState, StateEffect, StateField } from "@codemirror/state"
import { Decoration, EditorView, WidgetType, keymap } from "@codemirror/view"
import { tags } from "@lezer/highlight"
import { element } from "./element.js"

const colors = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--string)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--number)" },
  { tag: tags.definition(tags.function(tags.variableName)), fontWeight: "600" },
])
const LEAVE = "Ctrl or ⌘ + Enter runs it; Escape, then Tab, leaves the editor."
const theme = EditorView.theme({
  "&": { fontSize: "13px", backgroundColor: "var(--box)", color: "var(--ink)", border: "1px solid var(--line)", borderRadius: "6px" },
  "&.cm-focused": { outline: "2px solid var(--mark)" },
  ".cm-scroller": { fontFamily: "var(--mono)", maxHeight: "26rem" },
  ".cm-gutters": { backgroundColor: "var(--box)", color: "var(--faint)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--lit)" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--chosen) !important" },
  ".cm-tooltip": { backgroundColor: "var(--paper)", color: "var(--ink)", borderColor: "var(--line)", maxWidth: "min(36rem, 90vw)" },
})

/** What is wrong with a line, said below it. */
class Said extends WidgetType {
  constructor(text) { super(); this.text = text }
  eq(other) { return other.text === this.text }
  toDOM() { return element("div", { class: "said-here" }, this.text) }
}
const say = StateEffect.define()
const sayings = StateField.define({
  create: () => Decoration.none,
  update: (set, change) => change.effects.find(effect => effect.is(say))?.value ?? set.map(change.changes),
  provide: field => EditorView.decorations.from(field),
})

export class Editor {
  constructor(parent, text, label, { run, changed } = {}) {
    const keys = [{ key: "Mod-Enter", run: () => (run?.(), true) }, indentWithTab]
    this.view = new EditorView({
      parent,
      state: EditorState.create({
        doc: text,
        extensions: [
          keymap.of(keys), basicSetup, python(), indentUnit.of("    "), lintGutter(), sayings, theme, syntaxHighlighting(colors),
          EditorView.contentAttributes.of({ "aria-label": label, "aria-description": LEAVE, tabindex: "0" }),
          EditorView.updateListener.of(update => update.docChanged && changed?.(this.text)),
        ],
      }),
    })
    parent.append(element("p", { class: "leave", "aria-hidden": "true" }, LEAVE))
  }

  get text() { return this.view.state.doc.toString() }

  set text(text) { this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } }) }

  /** Show marks in the margin, and errors below their line as well: [{ line, message, severity: "error" | "info" }],
   *  lines from 1. The first error is moved into sight. */
  mark(marks) {
    const { doc } = this.view.state, inside = marks.filter(m => m.line >= 1 && m.line <= doc.lines).sort((a, b) => a.line - b.line)
    const found = inside.map(({ line, message, severity }) => {
      const { from, to, text } = doc.line(line), start = from + Math.max(text.search(/\S|$/), 0)
      return { from: start, to: Math.max(to, start), message, severity }
    })
    const errors = found.filter(m => m.severity === "error")
    const below = Decoration.set(errors.map(m => Decoration.widget({ widget: new Said(m.message), block: true, side: 1 }).range(m.to)))
    this.view.dispatch(setDiagnostics(this.view.state, found), { effects: say.of(below) })
    const { scrollDOM } = this.view
    if (errors.length) scrollDOM.scrollTop = this.view.lineBlockAt(errors[0].from).top - scrollDOM.clientHeight / 3
  }
}
