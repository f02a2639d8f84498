// The page of the lesson: a section for each cell, then the practice and the game. CELLS is put in by build.js.
import bridge from "./bridge.py"
import { Editor } from "./editor.js"
import { element } from "./element.js"
import { show } from "./figures.js"
import { report } from "./findings.js"
import { Python, Stopped } from "./python.js"
import { stateLine } from "./state.js"

const $ = id => document.getElementById(id)
/** The service worker keeps what it sees pass, so Python starts once it is there (or after four seconds without it). */
const kept = new Promise(done => {
  const worker = navigator.serviceWorker
  if (!worker || worker.controller) return done()
  worker.addEventListener("controllerchange", done)
  worker.register("sw.js").catch(done)
  setTimeout(done, 4000)
})
const python = new Python({
  worker: () => new Worker("worker.js"), bridge, told: stateLine($("state")),
  sources: async () => (await kept, await fetch("tinyattn.zip")).arrayBuffer(),
})

/** A slider over a list of values, or a choice of words. Calls changed() when the reader moves it. */
function control(name, { values, at }, changed) {
  if (typeof at === "string") {
    const select = element("select", { name }, ...values.map(v => element("option", v === at ? { selected: "" } : {}, v)))
    select.onchange = changed
    return { node: element("label", {}, name, select), get value() { return select.value } }
  }
  const range = element("input", { type: "range", name, min: 0, max: values.length - 1, value: values.indexOf(at), "aria-valuetext": at })
  const output = element("output", {}, String(at))
  range.oninput = () => {
    output.textContent = values[range.value].toLocaleString("en")
    range.setAttribute("aria-valuetext", values[range.value])
    changed()
  }
  return { node: element("label", {}, element("span", {}, `${name} = `, output), range), get value() { return values[range.value] } }
}

/** One section: its text, its controls, its figure, its code. */
function section(cell, number) {
  const figure = element("div", { class: "figure" }), said = element("div", { "aria-live": "polite" })
  const run = element("button", { class: "main" }, "Run"), stop = element("button", { disabled: "" }, "Stop"), reset = element("button", {}, "As it was")
  const holder = element("div"), code = element("details", {}, element("summary", {}, `the code: cells/${cell.file}`), holder)
  let editor = null, newest = 0, busy = false, again = false

  async function work() {
    if (busy) { again = true; return }
    busy = true
    const turn = ++newest
    run.disabled = true
    box.classList.add("busy")
    try {
      const values = Object.fromEntries(Object.entries(controls).map(([name, c]) => [name, c.value]))
      const part = parts => turn === newest && show(figure, Array.isArray(parts) ? parts : [parts])
      const job = { source: editor ? editor.text : cell.source, file: cell.file, values }
      const result = await python.call("run", job, { part, limit: 60, begun: () => { stop.disabled = false } })
      said.replaceChildren(...(result.text ? [element("pre", {}, result.text)] : []))
      if (result.error) {
        said.append(element("p", { class: "error" }, (result.line ? `line ${result.line}: ` : "") + result.error))
        if (result.line) { code.open = true; edit().mark([{ line: result.line, message: result.error, severity: "error" }]) }
      } else {
        show(figure, result.parts)
        editor?.mark([])
        box.dataset.done = turn
      }
    } catch (error) {
      said.replaceChildren(element("p", { class: "error" }, error instanceof Stopped ? error.message : String(error.message)))
    }
    busy = false
    run.disabled = false
    stop.disabled = true
    box.classList.remove("busy")
    if (again) { again = false; work() }
  }
  const edit = () => editor ??= new Editor(holder, cell.source, `the code of ${cell.title}`, { run: work })
  const controls = Object.fromEntries(Object.entries(cell.controls).map(([name, c]) => [name, control(name, c, work)]))
  code.addEventListener("toggle", () => code.open && edit())
  run.onclick = work
  stop.onclick = () => { again = false; python.stop() }
  reset.onclick = () => { if (editor) editor.text = cell.source; work() }
  const box = element("section", { id: cell.id, "aria-labelledby": `${cell.id}-title` }, element("h2", { id: `${cell.id}-title` }, `${number}. ${cell.title}`),
    element("p", {}, cell.text), element("p", { class: "predict" }, cell.question),
    element("div", { class: "controls" }, ...Object.values(controls).map(c => c.node)), figure, said,
    element("div", { class: "row" }, run, stop, reset), code)
  new IntersectionObserver((seen, observer) => seen.some(s => s.isIntersecting) && (observer.disconnect(), work()), { rootMargin: "300px" }).observe(box)
  return box
}

/** The practice: the file of exercises in an editor, and what the checker says of it. It is kept in the browser. */
function practice(box) {
  const holder = element("div"), answer = element("div", { "aria-live": "polite" }), name = "my_attention.py"
  const run = element("button", { class: "main", disabled: "" }, "Check"), begin = element("button", {}, "Begin"), take = element("button", { disabled: "" }, "Take the file along")
  let editor
  box.append(element("h2", { id: "practice-title" }, "Practice: write it yourself"),
    element("p", {}, "Five steps in about half an hour, and a few more. What you write stays in this browser; take it along as a file whenever you like."),
    element("div", { class: "row" }, begin, run, take), holder, answer)

  const open = text => {
    editor = new Editor(holder, text, "your practice file", { run: check, changed: text => localStorage.setItem("tinyattn practice", text) })
    run.disabled = take.disabled = false
    begin.textContent = "Begin again"
  }
  async function fresh() {
    begin.disabled = true
    try {
      const { files } = await python.call("command", { arguments: ["practice", `fresh/${Date.now()}.py`.replace("fresh/", "fresh_")], files: {} })
      const text = Object.entries(files).filter(([file]) => file.startsWith("fresh_")).sort().at(-1)[1].replaceAll(/fresh_\d+\.py/g, name)
      localStorage.setItem("tinyattn practice", text)
      if (editor) editor.text = text
      else open(text)
    } catch (error) { answer.replaceChildren(element("p", { class: "error" }, error.message)) }
    begin.disabled = false
  }
  async function check() {
    run.disabled = true
    answer.replaceChildren(element("p", { class: "faint" }, "checking …"))
    try {
      const files = { [name]: editor.text }
      const told = await python.call("command", { arguments: ["check", name], files }, { limit: 90 })
      answer.replaceChildren(element("pre", { "data-code": told.code }, told.text))
      const json = await python.call("command", { arguments: ["check", "--json", name], files }, { limit: 90 })
      const { findings = [] } = JSON.parse(json.text)
      editor.mark(findings.filter(f => f.line).map(f => ({ line: f.line, message: f.message, severity: f.severity === "bug" ? "error" : "info" })))
    } catch (error) { answer.append(element("p", { class: "error" }, error.message)) }
    run.disabled = false
  }
  begin.onclick = fresh
  run.onclick = check
  take.onclick = () => {
    const link = element("a", { href: URL.createObjectURL(new Blob([editor.text], { type: "text/x-python" })), download: name })
    link.click()
  }
  const kept = localStorage.getItem("tinyattn practice")
  if (kept) open(kept)
}

/** The game: a program with one bug and its symptom; mend it. */
function game(box) {
  const holder = element("div"), symptom = element("div"), answer = element("div", { "aria-live": "polite" }), row = element("div", { class: "row" })
  const next = element("button", { class: "main" }, "Show me a bug"), check = element("button", { disabled: "" }, "Is it mended?"), hint = element("button", { disabled: "" }, "A hint"), give = element("button", { disabled: "" }, "Tell me")
  let editor, bug, list, score = { found: 0, told: 0 }
  row.append(next, check, hint, give)
  const count = element("p", { class: "faint" })
  box.append(element("h2", { id: "break-title" }, "Find the bug"), element("p", {}, "A program with one mistake that people really make, and what it answers beside the right answer. Find it, and mend it."), row, count, symptom, holder, answer)
  const tally = () => { count.textContent = `found: ${score.found}, told: ${score.told}` }

  next.onclick = async () => {
    next.disabled = true
    try {
      list ??= await python.call("bugs", {})
      const easy = list.filter(([, kind]) => kind === "scaled_dot_product_attention" || kind === "causal_mask"), pool = score.found < 3 ? easy : list
      const [id] = pool[Math.floor(Math.random() * pool.length)]
      bug = { id, ...await python.call("bug", { name: id }) }
      if (editor) editor.text = bug.source
      else editor = new Editor(holder, bug.source, "the program with a bug")
      editor.mark([])
      const [right, wrong] = bug.symptom ?? ["(equal to the right program on all small inputs; look at the gradient, or at long scores)", ""]
      symptom.replaceChildren(element("p", { class: "faint" }, "right:"), element("pre", {}, right), element("p", { class: "faint" }, "this program:"), element("pre", {}, wrong))
      answer.replaceChildren()
      check.disabled = hint.disabled = give.disabled = false
      next.textContent = "Another"
    } catch (error) { answer.replaceChildren(element("p", { class: "error" }, error.message)) }
    next.disabled = false
  }
  check.onclick = async () => {
    check.disabled = true
    try {
      const found = await python.call("check", { source: editor.text, kind: null }, { limit: 60 })
      if (found.verdict === "correct") {
        score.found++
        answer.replaceChildren(element("p", { class: "ok" }, `✓ mended. It was ${bug.id}: ${bug.what}`), element("p", { class: "faint" }, bug.lesson))
      } else answer.replaceChildren(element("p", { class: "error" }, "✗ not yet: its answers still differ from the right ones."))
    } catch (error) { answer.replaceChildren(element("p", { class: "error" }, error.message)) }
    check.disabled = false
    tally()
  }
  hint.onclick = () => answer.replaceChildren(element("p", {}, bug.hint))
  give.onclick = async () => {
    score.told++
    tally()
    try { report(answer, editor, await python.call("check", { source: editor.text, kind: null }, { limit: 60 })) }
    catch (error) { answer.replaceChildren(element("p", {}, `${bug.id}: ${bug.what}`)) }
  }
}

$("contents").append(...CELLS.map(cell => element("li", {}, element("a", { href: `#${cell.id}` }, cell.title))))
$("sections").append(...CELLS.map((cell, i) => section(cell, i + 1)))
practice($("practice"))
game($("break"))
python.start().catch(() => {})
