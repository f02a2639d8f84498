// check.html: the checker alone. WORKER and SOURCES are put in by build.js.
import bridge from "./bridge.py"
import { Editor } from "./editor.js"
import { element } from "./element.js"
import { report, working } from "./findings.js"
import { Python } from "./python.js"
import { stateLine } from "./state.js"
import { stored } from "./stored.js"
import example from "./example.py"

const python = new Python({
  worker: () => new Worker(URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" }))),
  sources: async () => Uint8Array.from(atob(SOURCES), c => c.charCodeAt(0)).buffer,
  bridge, told: stateLine(document.getElementById("state")),
})
const KEY = "tinyattn check", box = document.getElementById("checker"), holder = element("div"), answer = element("div", { "aria-live": "polite" })
const run = element("button", { class: "main" }, "Check"), stop = element("button", { disabled: "" }, "Stop")
box.append(holder, element("div", { class: "row" }, run, stop, element("span", { class: "faint" }, "Ctrl or ⌘ + Enter")), answer)
const check = working(answer, run, stop, python, async begun => report(answer, editor, await python.call("check", { source: editor.text }, { begun })))
const editor = new Editor(holder, stored.get(KEY) ?? example, "your program", { run: check, changed: text => stored.set(KEY, text) })
run.onclick = check
python.start().catch(() => {})
