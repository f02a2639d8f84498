// The checker's findings: each beside the line that it is about in the editor, and below it in words.
import { element } from "./element.js"

const WORDS = { correct: "✓ right, as far as was tried", wrong: "✗ something is wrong", error: "✗ it could not be checked" }

/** What the findings say, as a list, and at their lines in the editor. hints: whether each has its own, closed. */
export function told(editor, findings, { hints = true } = {}) {
  editor.mark(findings.filter(f => f.line).map(f => ({ line: f.line, message: f.message, severity: f.severity === "bug" ? "error" : "info" })))
  return element("ul", { class: "findings" }, ...findings.map(f => {
    const bug = f.severity === "bug", name = element("strong", {}, bug ? f.id.replace(/^(property|error)-/, "") : "note")
    const item = element("li", { class: bug ? "bug" : "note", "data-id": f.id, "data-line": f.line }, name, ` ${f.line ? `line ${f.line}: ` : ""}${f.message}`)
    if (hints && f.hint) item.append(element("details", {}, element("summary", {}, "a hint"), f.hint))
    return item
  }))
}

/** A report of the checker in box. */
export function report(box, editor, { verdict, findings, text }) {
  box.replaceChildren(element("p", { class: verdict === "correct" ? "ok" : "error", "data-verdict": verdict }, WORDS[verdict]),
    told(editor, findings), element("details", {}, element("summary", {}, "the whole report"), element("pre", {}, text)))
}

/** One button for a job that takes a while, and one that stops it. The answer's box says what went wrong. */
export function working(box, run, stop, python, job) {
  stop.onclick = () => python.stop()
  return async () => {
    if (run.disabled) return
    run.disabled = true
    box.replaceChildren(element("p", { class: "faint" }, "checking …"))
    try { await job(() => { stop.disabled = false }) } catch (error) { box.replaceChildren(element("p", { class: "error" }, error.message)) }
    run.disabled = false
    stop.disabled = true
  }
}
