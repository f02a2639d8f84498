// The practice: the file of exercises in an editor, and what the checker says of it, step by step.
import { Editor } from "./editor.js"
import { element } from "./element.js"
import { told, working } from "./findings.js"
import { Hints } from "./hints.js"
import { follow, stored } from "./stored.js"

const KEY = "tinyattn practice", NAME = "my_attention.py", MARKS = { done: "✓", "under way": "→", "not begun": "·" }

export function practice(box, python) {
  const holder = element("div"), answer = element("div", { "aria-live": "polite" }), list = element("ol", { class: "steps" }), hints = new Hints()
  const run = element("button", { class: "main" }, "Check"), stop = element("button", { disabled: "" }, "Stop")
  const begin = element("button", { class: "main" }, "Begin"), take = element("button", {}, "Take the file along")
  const tools = element("div", { hidden: "" }, list, holder, element("div", { class: "row" }, run, stop, hints.button, take), answer, hints.box)
  let editor
  box.append(element("h2", { id: "practice-title" }, "Practice: write it yourself"),
    element("p", {}, "Five steps in about half an hour, and four more. What you write stays in this browser; take it along as a file whenever you like."),
    element("div", { class: "row" }, begin), tools)

  const check = working(answer, run, stop, python, async begun => {
    const found = await python.call("practice", { source: editor.text }, { limit: 90, begun })
    steps(found)
    answer.replaceChildren(...verdict(found))
  })

  function steps({ steps, done }) {
    list.replaceChildren(...steps.map(({ title, state }, k) => element("li", { class: k === done ? "now" : "", "data-state": state, ...(k === done && { "aria-current": "step" }) },
      `${k === done ? MARKS["under way"] : MARKS[state]} ${k + 1}. ${title}`)))
  }

  function verdict({ verdict, findings, text, done, begun, steps, hints: all = [], solution = "" }) {
    const bugs = findings.filter(f => f.severity === "bug")
    hints.set(solution && `${done} ${bugs[0]?.id}`, all, () => [element("pre", {}, solution)])
    const marked = told(editor, findings, { hints: false })
    const nodes = text ? [element("pre", { class: "shown" }, text)] : []
    if (done === steps.length) return [element("p", { class: "ok", "data-done": done }, "✓ All nine steps are done. Find the bug, below, is the game that follows."), ...nodes]
    const where = `Step ${done + 1}, ${steps[done].title}: `
    const said = !begun ? bugs.map(f => f.message).join(" ") : verdict === "error" ? "it cannot be checked." : "something is wrong."
    return [element("p", { class: begun ? "error" : "", "data-done": done }, where + said), ...(begun ? [marked] : []), ...nodes]
  }

  function open(text) {
    editor = new Editor(holder, text, "your practice file", { run: check, changed: text => stored.set(KEY, text) })
    follow(KEY, editor)
    tools.hidden = false
    begin.textContent = "Begin again"
    begin.className = ""
  }
  begin.onclick = async () => {
    if (editor && !confirm("Begin again? What you have written is thrown away.")) return
    begin.disabled = true
    try {
      const text = await python.call("template", {})
      stored.set(KEY, text)
      if (editor) editor.text = text
      else open(text)
      begin.nextSibling?.remove()
      check()
    } catch (error) { begin.after(element("span", { class: "error" }, error.message)) }
    begin.disabled = false
  }
  run.onclick = check
  take.onclick = () => {
    const address = URL.createObjectURL(new Blob([editor.text], { type: "text/x-python" }))
    element("a", { href: address, download: NAME }).click()
    setTimeout(() => URL.revokeObjectURL(address), 1000)
  }
  const before = stored.get(KEY)
  if (before) open(before)
}
