// One section of the lesson: its text, its controls, its figure, its code.
import { Editor } from "./editor.js"
import { element } from "./element.js"
import { show } from "./figures.js"

/** A slider over a list of values, or a choice of words. Calls changed() when the reader moves it. */
function control(name, { values, at }, changed) {
  if (typeof at === "string") {
    const select = element("select", { name }, ...values.map(v => element("option", v === at ? { selected: "" } : {}, v)))
    select.onchange = changed
    return { node: element("label", {}, name, select), get value() { return select.value } }
  }
  const word = value => value.toLocaleString("en").replace("-", "−")
  const range = element("input", { type: "range", name, min: 0, max: values.length - 1, value: values.indexOf(at), "aria-valuetext": word(at) })
  const output = element("output", {}, word(at))
  range.oninput = () => {
    output.textContent = word(values[range.value])
    range.setAttribute("aria-valuetext", output.textContent)
    changed()
  }
  return { node: element("label", {}, element("span", {}, `${name} = `, output), range), get value() { return values[range.value] } }
}

export function section(cell, number, python) {
  const figure = element("div", { class: "figure" }), said = element("div", { "aria-live": "polite" })
  const run = element("button", { class: "main" }, "Run"), stop = element("button", { disabled: "" }, "Stop"), reset = element("button", {}, "As it was")
  const holder = element("div"), code = element("details", {}, element("summary", {}, `the code: cells/${cell.file}`), holder)
  let editor = null, turns = 0, busy = false, again = false

  /** Run the cell. While it runs, the last of what is asked for waits, whatever a slider passes on its way. */
  async function work() {
    if (busy) { again = true; return }
    busy = run.disabled = true
    box.classList.add("busy")
    try {
      const values = Object.fromEntries(Object.entries(controls).map(([name, c]) => [name, c.value]))
      const job = { source: editor ? editor.text : cell.source, file: cell.file, values }
      const result = await python.call("run", job, { part: parts => show(figure, parts), begun: () => { stop.disabled = false } })
      said.replaceChildren(...(result.text ? [element("pre", {}, result.text)] : []))
      if (result.error) fail(result)
      else {
        show(figure, result.parts)
        editor?.mark([])
        box.dataset.done = ++turns
      }
    } catch (error) { said.replaceChildren(element("p", { class: "error" }, error.message)) }
    busy = run.disabled = false
    stop.disabled = true
    box.classList.remove("busy")
    if (again) { again = false; work() }
  }

  function fail({ error, line }) {
    said.append(element("p", { class: "error" }, (line ? `line ${line}: ` : "") + error))
    if (!line) return
    code.open = true
    edit().mark([{ line, message: error, severity: "error" }])
  }

  const edit = () => editor ??= new Editor(holder, cell.source, `the code of ${cell.title}`, { run: work })
  const controls = Object.fromEntries(Object.entries(cell.controls).map(([name, c]) => [name, control(name, c, work)]))
  code.addEventListener("toggle", () => code.open && edit())
  run.onclick = work
  stop.onclick = () => { again = false; python.stop() }
  reset.onclick = () => { if (editor) editor.text = cell.source; work() }
  const box = element("section", { id: cell.id, "aria-labelledby": `${cell.id}-title` }, element("h2", { id: `${cell.id}-title` }, `${number}. ${cell.title}`),
    ...cell.text.map(text => element("p", {}, text)), element("p", { class: "predict" }, cell.question),
    element("div", { class: "controls" }, ...Object.values(controls).map(c => c.node)), figure, said,
    element("div", { class: "row" }, run, stop, reset), code)
  const near = new IntersectionObserver(seen => seen.some(s => s.isIntersecting) && (near.disconnect(), work()), { rootMargin: "300px" })
  near.observe(box)
  return box
}
