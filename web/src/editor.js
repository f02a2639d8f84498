// An editor for Python whose margin shows findings beside the line that they are about.
import { basicSetup } from "codemirror"
import { indentWithTab } from "@codemirror/commands"
import { python } from "@codemirror/lang-python"
import { HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language"
import { lintGutter, setDiagnostics } from "@codemirror/lint"
import { EditorState } from "@codemirror/state"
import { EditorView, keymap } from "@codemirror/view"
import { tags } from "@lezer/highlight"

const colors = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--string)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--number)" },
  { tag: tags.definition(tags.function(tags.variableName)), fontWeight: "600" },
])
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

export class Editor {
  constructor(parent, text, label, { run, changed } = {}) {
    const keys = [{ key: "Mod-Enter", run: () => (run?.(), true) }, indentWithTab]
    this.view = new EditorView({
      parent,
      state: EditorState.create({
        doc: text,
        extensions: [
          keymap.of(keys), basicSetup, python(), indentUnit.of("    "), lintGutter(), theme, syntaxHighlighting(colors),
          EditorView.contentAttributes.of({ "aria-label": label }),
          EditorView.updateListener.of(update => update.docChanged && changed?.(this.text)),
        ],
      }),
    })
  }

  get text() { return this.view.state.doc.toString() }

  set text(text) { this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } }) }

  /** marks: [{ line, message, severity: "error" | "info" }]; lines count from 1. */
  mark(marks) {
    const doc = this.view.state.doc
    const found = marks.filter(m => m.line >= 1 && m.line <= doc.lines).map(m => {
      const line = doc.line(m.line), start = line.from + line.text.search(/\S|$/)
      return { from: start, to: Math.max(line.to, start), message: m.message, severity: m.severity }
    })
    this.view.dispatch(setDiagnostics(this.view.state, found))
  }
}
