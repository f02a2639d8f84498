// The checker's report beside the editor: findings at their lines, hints one at a time, the text of the whole report.
import { element } from "./element.js"

const WORDS = { correct: "✓ right, as far as was tried", wrong: "✗ something is wrong", error: "✗ it could not be checked" }

/** Show a report in box, and mark its lines in the editor. folded: hints stay closed until asked for. */
export function report(box, editor, { verdict, findings, text }, { folded = false } = {}) {
  const list = findings.map(f => {
    const place = f.line ? `line ${f.line}: ` : ""
    const item = element("li", { class: f.severity === "bug" ? "bug" : "note", "data-id": f.id },
      element("strong", {}, f.severity === "bug" ? f.id : "note"), ` ${place}${f.message}`)
    if (f.hint) item.append(folded ? element("details", {}, element("summary", {}, "a hint"), f.hint) : element("div", { class: "faint" }, f.hint))
    return item
  })
  editor.mark(findings.filter(f => f.line).map(f => ({ line: f.line, message: `${f.id}: ${f.message}`, severity: f.severity === "bug" ? "error" : "info" })))
  box.replaceChildren(element("p", { class: verdict === "correct" ? "ok" : "error", "data-verdict": verdict }, WORDS[verdict] ?? verdict),
    element("ul", { class: "findings" }, ...list), element("details", {}, element("summary", {}, "the whole report"), element("pre", {}, text)))
}
