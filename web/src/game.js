// The game: a program with one bug and its symptom. Find it, and mend it.
import { Editor } from "./editor.js"
import { element } from "./element.js"
import { show } from "./figures.js"
import { working } from "./findings.js"
import { Hints } from "./hints.js"
import { stored } from "./stored.js"

const KEY = "tinyattn found"

export function game(box, python) {
  const holder = element("div"), symptom = element("div", { class: "figure" }), answer = element("div", { "aria-live": "polite" }), hints = new Hints()
  const next = element("button", { class: "main" }, "Show me a bug"), check = element("button", { class: "main" }, "Is it mended?"), stop = element("button", { disabled: "" }, "Stop")
  const tools = element("div", { hidden: "" }, symptom, holder, element("div", { class: "row" }, check, stop, hints.button), answer, hints.box)
  const count = element("span", { class: "faint" }), found = new Set(JSON.parse(stored.get(KEY) ?? "[]"))
  let editor, bug, bugs, helped
  box.append(element("h2", { id: "break-title" }, "Find the bug"),
    element("p", {}, "A program with one mistake that people really make, and what it answers beside the right answer. Find it, and mend it. It gets harder: one head, several heads, the way back."),
    element("div", { class: "row" }, next, count), tools)
  const tally = () => { count.textContent = bugs ? `${found.size} of ${bugs.length} found` : found.size ? `${found.size} found` : "" }
  tally()

  next.onclick = async () => {
    next.disabled = true
    try {
      bugs ??= await python.call("bugs", {})
      const left = bugs.filter(([id]) => !found.has(id) && id !== bug?.id), pool = left.length ? left : bugs
      const level = pool.filter(([, level]) => level === pool[0][1]), [id] = level[Math.floor(Math.random() * level.length)]
      bug = { id, ...await python.call("bug", { name: id }) }
      helped = false
      if (editor) editor.text = bug.source
      else editor = new Editor(holder, bug.source, "the program with a bug", { run: ask })
      editor.mark([])
      show(symptom, seen(bug))
      hints.set(id, [bug.hint, bug.lesson, `Look at ${nearby(bug)}.`].filter(Boolean), solution)
      answer.replaceChildren()
      tools.hidden = false
      next.textContent = "Another"
      next.className = ""
    } catch (error) {
      tools.hidden = false
      answer.replaceChildren(element("p", { class: "error" }, error.message))
    }
    tally()
    next.disabled = false
  }

  const ask = working(answer, check, stop, python, async begun => {
    const told = await python.call("check", { source: editor.text }, { begun })
    if (told.verdict === "correct" && told.functions.includes(bug.function)) {
      if (!helped) found.add(bug.id)
      stored.set(KEY, JSON.stringify([...found]))
      tally()
      editor.mark([])
      answer.replaceChildren(element("p", { class: "ok", "data-mended": bug.id }, `✓ Mended. ${bug.what}`))
    } else {
      const first = told.findings.find(f => f.severity === "bug"), why = first?.id.startsWith("error-") ? first.message : "its answers still differ from the right ones."
      answer.replaceChildren(element("p", { class: "error", "data-mended": "" }, `✗ Not yet: ${why}`))
    }
  })
  check.onclick = ask

  /** The places, and what belongs there. */
  function solution() {
    helped = true
    editor.text = bug.source
    editor.mark(bug.places.map(({ line }, k) => ({ line, message: k ? "And here." : bug.what, severity: "error" })))
    const said = ({ line, wrong, right }) => !right.length ? `Line ${line} should not be there.` : wrong ? `Line ${line}, right is:` : `Before line ${line} this is missing:`
    return [`${bug.what}.`, ...bug.places.map(place =>
      element("div", {}, said(place), ...(place.right.length ? [element("pre", {}, place.right.map(text => text.trim()).join("\n"))] : [])))]
  }
}

/** The symptom: what went in, the right answer, and this program's, with what differs marked. */
function seen({ input, arguments: given, right, wrong }) {
  const matrices = x => Array.isArray(x) ? x.map(values => flat(values)).filter(Boolean) : []
  const rights = matrices(right), wrongs = matrices(wrong)
  const differs = (a, b) => a.flatMap((row, i) => row.flatMap((x, j) => Math.abs(x - b?.[i]?.[j]) <= 1e-7 * Math.max(1, Math.abs(x)) ? [] : [[i, j]]))
  const k = Math.max(0, rights.findIndex((m, i) => !wrongs[i] || m.length !== wrongs[i].length || differs(m, wrongs[i]).length))
  const part = (title, values, mark = []) => ({ matrix: { title, rows: values.map((_, i) => i + 1), columns: values[0].map((_, j) => j + 1), values, mark } })
  const inputs = Object.entries(given).map(([name, values]) => [name, flat(values)]).filter(([, m]) => m && m.length <= 8 && m[0].length <= 8)
  return [
    { text: `Its symptom on: ${input}.` },
    { beside: [...(rights[k] ? [part("the right answer", rights[k])] : []), ...(wrongs[k] ? [part("this program's answer", wrongs[k], rights[k] ? differs(wrongs[k], rights[k]) : [])] : [])] },
    ...(typeof wrong === "string" ? [{ text: `This program: ${wrong}` }] : []),
    ...(inputs.length ? [{ more: { title: "what was put in", parts: [{ beside: inputs.map(([name, values]) => part(name, values)) }] } }] : []),
  ]
}

/** A matrix of numbers, the first one of a batch, booleans as 0 and 1; nothing for what is no matrix. */
function flat(values) {
  while (Array.isArray(values?.[0]?.[0])) values = values[0]
  if (Array.isArray(values) && values.length && !Array.isArray(values[0])) values = [values]
  return Array.isArray(values?.[0]) && values[0].length ? values.map(row => row.map(Number)) : null
}

/** The function that a line is in. */
function nearby({ source, places }) {
  const before = source.split("\n").slice(0, places[0].line).reverse().find(text => /^def /.test(text))
  return before ? before.replace(/^def (\w+).*/, "$1") : "the top"
}
