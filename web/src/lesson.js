// The page of the lesson: a section for each cell, then the practice and the game. CELLS is put in by build.js.
import bridge from "./bridge.py"
import { element } from "./element.js"
import { game } from "./game.js"
import { practice } from "./practice.js"
import { Python } from "./python.js"
import { section } from "./section.js"
import { stateLine } from "./state.js"

const $ = id => document.getElementById(id), told = stateLine($("state"))
const python = new Python({
  worker: () => new Worker("worker.js"), library: new URL("python_stdlib.zip", location).href, bridge, told,
  sources: async () => (await fetch("tinyattn.zip")).arrayBuffer(),
})

/** After the first result the service worker keeps what was fetched, so that the lesson works offline from then on. */
async function keep() {
  const { serviceWorker } = navigator
  if (!serviceWorker) return
  await serviceWorker.register("sw.js")
  const { active } = await serviceWorker.ready
  serviceWorker.onmessage = () => { $("state").dataset.kept = "yes" }
  active.postMessage(python.fetched)
}

$("contents").append(...CELLS.map(cell => element("li", {}, element("a", { href: `#${cell.id}` }, cell.title))))
$("sections").append(...CELLS.map((cell, i) => section(cell, i + 1, python)))
practice($("practice"), python)
game($("break"), python)
python.start().then(() => python.last).then(keep).catch(() => {})
$(location.hash.slice(1))?.scrollIntoView()
