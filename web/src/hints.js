// Hints one at a time, from the least to the most; the solution is the last.
import { element } from "./element.js"

export class Hints {
  constructor() {
    this.button = element("button", { disabled: "" }, "A hint")
    this.box = element("ol", { class: "hints", "aria-live": "polite" })
    this.button.onclick = () => this.next()
    this.set("", [], () => [])
  }

  /** name: what they are about: as long as it stays, those shown stay. solution(): the nodes to show at the end. */
  set(name, hints, solution) {
    if (name !== this.name) this.box.replaceChildren()
    Object.assign(this, { name, hints, solution })
    this.label()
  }

  label() {
    const shown = this.box.childElementCount, count = this.hints.length
    this.button.disabled = !this.name || shown > count
    this.button.textContent = shown < count ? `A hint (${shown + 1} of ${count})` : "The solution"
  }

  next() {
    const shown = this.box.childElementCount
    this.box.append(element("li", {}, ...(shown < this.hints.length ? [this.hints[shown]] : this.solution())))
    this.label()
  }
}
