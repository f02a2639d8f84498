// What a cell's figure returns, as elements. A part is an object with one of these keys:
//   measures {name: number or text}     table {columns, rows}      text "…"
//   curves {x, y: {label: [...]}, log: "xy", labels: [x, y]}      matrix {rows, columns, values, mark}
//   dot "digraph …"                     page "<!doctype html>…" (the microscope)
import { instance } from "@viz-js/viz"
import uPlot from "uplot"
import { element } from "./element.js"

const graphviz = instance()
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
    const top = Math.max(...values.flat().map(Math.abs).filter(Number.isFinite), 1e-9)
    const marked = new Set(mark.map(([i, j]) => `${i},${j}`))
    const cell = (x, i, j) => element("td", {
      style: `--x:${Number.isFinite(x) ? Math.round(Math.abs(x) / top * 80) : 0}`, "data-value": x,
      class: (x === 0 ? "zero" : x < 0 ? "minus" : "plus") + (marked.has(`${i},${j}`) ? " marked" : ""),
    }, x === 0 ? "0" : typeof x === "number" ? x.toFixed(2).replace(/^(-?)0\./, "$1.") : x)
    return element("div", { class: "wide" }, element("table", { class: "matrix" }, element("caption", {}, title),
      element("thead", {}, element("tr", {}, ...["", ...columns].map(c => element("th", { scope: "col" }, c)))),
      element("tbody", {}, ...values.map((row, i) => element("tr", {}, element("th", { scope: "row" }, rows[i]), ...row.map((x, j) => cell(x, i, j)))))))
  },

  curves({ x, y, log = "", labels = ["", ""], mark }, box) {
    const names = Object.keys(y), inks = ["--line1", "--line2", "--line3", "--line4", "--line5"].map(color)
    const holder = element("div", { class: "plot", role: "img", "aria-label": `${labels[1]} against ${labels[0]}: ${names.map(n => `${n} ends at ${short(y[n].at(-1))}`).join(", ")}` })
    const axis = { stroke: color("--ink"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") }, font: "12px system-ui" }
    const width = Math.min(box.clientWidth || 600, 720)
    requestAnimationFrame(() => new uPlot({
      width, height: Math.max(220, width * .42), legend: { live: false },
      scales: { x: { time: false, distr: log.includes("x") ? 3 : 1 }, y: { distr: log.includes("y") ? 3 : 1 } },
      axes: [{ ...axis, label: labels[0], labelFont: "13px system-ui", labelSize: 22 }, { ...axis, label: labels[1], labelFont: "13px system-ui", labelSize: 22, size: 60, values: log.includes("y") ? (u, all) => all.map(v => v === null ? "" : short(v)) : undefined }],
      series: [{}, ...names.map((label, k) => ({ label, stroke: inks[k % 5], width: 2, dash: [[], [8, 4], [3, 3], [12, 3, 3, 3], [1, 4]][k % 5], points: { show: x.length < 40, size: 6 } }))],
    }, [x, ...names.map(n => y[n].map(v => typeof v === "number" && !(log.includes("y") && v <= 0) ? v : null))], holder))
    holder.dataset.curves = JSON.stringify({ x, y })
    return holder
  },

  dot(text) {
    const holder = element("div", { class: "wide graph", role: "img", "aria-label": "computation graph, coloured by gradient" })
    graphviz.then(viz => holder.append(viz.renderSVGElement(text)))
    return holder
  },

  page: html => element("iframe", { srcdoc: html, sandbox: "allow-scripts", title: "the microscope: every number and its gradient", class: "microscope" }),
}

/** Show the parts of a figure in box, in place of what was there. */
export function show(box, parts) {
  const nodes = parts.flatMap(part => Object.entries(part).filter(([kind]) => kind in render).map(([kind, value]) => render[kind](value, box)))
  const old = box.querySelector("iframe.microscope"), page = parts.find(p => p.page)?.page
  if (old && page && old.srcdoc === page) return
  box.replaceChildren(...nodes)
}
