// What a cell's figure returns, as elements. A part is an object with one of these keys:
//   measures {name: number or text}     table {columns, rows}      text "…"
//   curves {x, y: {label: [...]}, log: "xy", labels: [x, y]}      matrix {rows, columns, values, mark}
//   dot "digraph …"                     page "<!doctype html>…" (the microscope)
//   beside [parts]                      more {title, parts}: closed until it is opened
import { instance } from "@viz-js/viz"
import uPlot from "uplot"
import { element } from "./element.js"

let graphviz // made when the first graph comes
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

/** A number for reading; its full value stands in the attribute data-value. */
export const short = x => {
  if (typeof x !== "number") return String(x)
  if (x === 0 || (Number.isInteger(x) && Math.abs(x) < 1e7)) return x.toLocaleString("en")
  const size = Math.abs(x)
  return size >= 1e5 || size < 1e-3 ? x.toExponential(1).replace("e-", "e−") : x.toPrecision(3)
}

const render = {
  text: text => element("p", { class: "said" }, text),

  measures: all => element("dl", { class: "measures" }, ...Object.entries(all).map(([name, x]) =>
    element("div", {}, element("dt", {}, name), element("dd", { "data-name": name, "data-value": x }, short(x))))),

  table: ({ columns, rows }) => element("div", { class: "wide" }, element("table", {},
    element("thead", {}, element("tr", {}, ...columns.map(c => element("th", { scope: "col" }, c)))),
    element("tbody", {}, ...rows.map(row => element("tr", {}, ...row.map((x, i) =>
      i ? element("td", {}, short(x)) : element("th", { scope: "row" }, short(x)))))))),

  matrix({ rows, columns, values, mark = [], title = "" }) {
    if (values.length * columns.length > 4096) return render.text(`${title}: ${values.length} × ${columns.length} numbers are too many to show.`)
    const whole = values.flat().every(Number.isInteger)
    const top = Math.max(...values.flat().map(Math.abs).filter(Number.isFinite), 1e-9)
    const marked = new Set(mark.map(([i, j]) => `${i},${j}`))
    const cell = (x, i, j) => element("td", {
      style: `--x:${Number.isFinite(x) ? Math.round(Math.abs(x) / top * 80) : 0}`, "data-value": x,
      class: (x === 0 ? "zero" : x < 0 ? "minus" : "plus") + (marked.has(`${i},${j}`) ? " marked" : ""),
    }, x === 0 || whole ? `${x}` : typeof x === "number" ? x.toFixed(2).replace(/^(-?)0\./, "$1.") : x)
    return element("div", { class: "wide" }, element("table", { class: "matrix" }, element("caption", {}, title),
      element("thead", {}, element("tr", {}, ...["", ...columns].map(c => element("th", { scope: "col" }, c)))),
      element("tbody", {}, ...values.map((row, i) => element("tr", {}, element("th", { scope: "row" }, rows[i]), ...row.map((x, j) => cell(x, i, j)))))))
  },

  curves({ x, y, log = "", labels = ["", ""] }, room) {
    const names = Object.keys(y), inks = ["--line1", "--line2", "--line3", "--line4", "--line5"].map(color)
    const holder = element("div", { class: "plot", role: "img", "aria-label": `${labels[1]} against ${labels[0]}: ${names.map(n => `${n} ends at ${short(y[n].at(-1))}`).join(", ")}` })
    const width = Math.min(room, 720), [logX, logY] = ["x", "y"].map(which => log.includes(which))
    const axis = (label, more) => ({ label, stroke: color("--ink"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") }, font: "12px system-ui", labelFont: "13px system-ui", labelSize: 20, ...more })
    const some = x.filter((_, i) => (x.length - 1 - i) % Math.ceil(x.length * 44 / width) === 0) // as many as have room
    const numbers = { values: (_, all) => all.map(v => v === null ? "" : v >= 1000 ? v.toLocaleString("en") : short(v)) }
    requestAnimationFrame(() => new uPlot({
      width, height: Math.max(220, width * .42), legend: { live: false },
      scales: { x: { time: false, distr: logX ? 3 : 1, ...(logX && { range: (_, low, high) => [low / 1.2, high * 1.2] }) }, y: { distr: logY ? 3 : 1, ...(!logY && { range: (_, low, high) => [Math.min(low, 0), high * 1.05 || 1] }) } },
      axes: [axis(labels[0], logX ? { splits: () => some, ...numbers, grid: { stroke: color("--line"), width: 1, filter: (_, all) => all }, filter: (_, all) => all } : {}), axis(labels[1], { size: 60, ...(logY && numbers) })],
      series: [{}, ...names.map((label, k) => ({ label, stroke: inks[k % 5], width: 2, dash: [[], [8, 4], [3, 3], [12, 3, 3, 3], [1, 4]][k % 5], points: { show: x.length < 40, size: 6 } }))],
    }, [x, ...names.map(n => y[n].map(v => typeof v === "number" && !(logY && v <= 0) ? v : null))], holder))
    holder.dataset.curves = JSON.stringify({ x, y })
    return holder
  },

  dot(text) {
    const holder = element("div", { class: "wide graph", role: "img", "aria-label": "computation graph, coloured by gradient" })
    graphviz ??= instance()
    graphviz.then(viz => (holder.append(viz.renderSVGElement(text)), reach(holder))).catch(error => holder.append(error.message))
    return holder
  },

  page: html => element("iframe", { srcdoc: html.replace("</style>", "h1{display:none}@media(max-width:640px){#measures{display:none}}</style>"), sandbox: "allow-scripts", title: "the microscope: every number and its gradient", class: "microscope" }),

  beside: (parts, room) => element("div", { class: "beside" }, ...nodes(parts, room > 640 ? (room - 32) / 2 : room)),

  more: ({ title, parts }, room) => element("details", {}, element("summary", {}, title), ...nodes(parts, room)),
}

/** room: how wide a picture may be. */
const nodes = (parts, room) => parts.flatMap(part => Object.entries(part).map(([kind, value]) => {
  try { return render[kind](value, room) }
  catch { return element("p", { class: "error" }, kind in render ? `This is no ${kind} that the page can show.` : `The page cannot show "${kind}", but: ${Object.keys(render).join(", ")}.`) }
}))

/** What is wider than its place is scrolled, with the keyboard too. */
const reach = wide => { if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0 }

/** Show the parts of a figure in box, in place of what was there. */
export function show(box, parts) {
  box.parts = Array.isArray(parts) ? parts : [parts]
  box.replaceChildren(...nodes(box.parts, box.clientWidth || 600))
  box.querySelectorAll(".wide").forEach(reach)
}

/** Curves are painted in the page's colours and width: they are painted again where these change. */
const again = () => { for (const box of document.querySelectorAll(".figure:has(.plot)")) show(box, box.parts) }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again)
let width = innerWidth
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; again() } })
