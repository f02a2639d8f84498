// check.html: the checker alone. WORKER and SOURCES are put in by build.js.
import bridge from "./bridge.py"
import { Editor } from "./editor.js"
import { element } from "./element.js"
import { report } from "./findings.js"
import { Python } from "./python.js"
import { stateLine } from "./state.js"
import example from "./example.py"

const python = new Python({
  worker: () => new Worker(URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" }))),
  sources: async () => Uint8Array.from(atob(SOURCES), c => c.charCodeAt(0)).buffer,
  bridge, told: stateLine(document.getElementById("state")),
})
const box = document.getElementById("checker"), holder = element("div"), answer = element("div", { "aria-live": "polite" })
const run = element("button", { class: "main" }, "Check"), stop = element("button", { disabled: "" }, "Stop")
box.append(holder, element("div", { class: "row" }, run, stop, element("span", { class: "faint" }, "Ctrl or ⌘ + Enter")), answer)
const editor = new Editor(holder, localStorage.getItem("tinyattn check") ?? example, "your program", { run: check, changed: text => localStorage.setItem("tinyattn check", text) })

async function check() {
  run.disabled = true
  stop.disabled = false
  answer.replaceChildren(element("p", { class: "faint" }, "checking …"))
  try { report(answer, editor, await python.call("check", { source: editor.text, kind: null }, { limit: 60 })) }
  catch (error) { answer.replaceChildren(element("p", { class: "error" }, error.message)) }
  run.disabled = false
  stop.disabled = true
}
run.onclick = check
stop.onclick = () => python.stop()
python.start().catch(() => {})
