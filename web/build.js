// Builds web/dist from src/, cells/ and ../tinyattn:  node build.js
import { build } from "esbuild"
import { createHash } from "node:crypto"
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { deflateRawSync, crc32 } from "node:zlib"
import { loadPyodide } from "pyodide"

const read = path => readFileSync(new URL(path, import.meta.url), "utf8")
const dist = new URL("dist/", import.meta.url).pathname
const RUNTIME = /"(https:[^"]+)"/.exec(read("src/runtime.js"))[1], HOST = new URL(RUNTIME).origin

/** The Python sources as a zip. */
function zip(root, folder) {
  const files = readdirSync(join(root, folder), { recursive: true }).map(f => join(folder, String(f)).replaceAll("\\", "/"))
    .filter(f => /\.(py|html|npz|typed)$/.test(f) && !f.includes("__pycache__")).sort()
  const parts = [], directory = []
  let offset = 0
  for (const name of files) {
    const bytes = readFileSync(join(root, name)), packed = deflateRawSync(bytes, { level: 9 }), title = Buffer.from(name)
    const fields = Buffer.alloc(26) // version, flags, method, time, date, sum, sizes, lengths
    fields.writeUInt16LE(20, 0); fields.writeUInt16LE(0x800, 2); fields.writeUInt16LE(8, 4); fields.writeUInt16LE(0x21, 8)
    fields.writeUInt32LE(crc32(bytes), 10); fields.writeUInt32LE(packed.length, 14); fields.writeUInt32LE(bytes.length, 18); fields.writeUInt16LE(title.length, 22)
    const entry = Buffer.alloc(46)
    entry.writeUInt32LE(0x02014b50, 0); entry.writeUInt16LE(20, 4); fields.copy(entry, 6); entry.writeUInt32LE(offset, 42)
    parts.push(Buffer.from([0x50, 0x4b, 3, 4]), fields, title, packed)
    directory.push(entry, title)
    offset += 30 + title.length + packed.length
  }
  const end = Buffer.alloc(22), listing = Buffer.concat(directory)
  end.writeUInt32LE(0x06054b50, 0); end.writeUInt16LE(files.length, 8); end.writeUInt16LE(files.length, 10)
  end.writeUInt32LE(listing.length, 12); end.writeUInt32LE(offset, 16)
  return Buffer.concat([...parts, listing, end])
}

/** A cell's file: its title, its text, its question, its controls, its code. */
function cell(name) {
  const source = read(`cells/${name}`), [, doc] = /^"""([\s\S]*?)"""/.exec(source)
  const [title, ...text] = doc.trim().split("\n\n").map(part => part.replace(/\s+/g, " ")), question = text.pop()
  const controls = /^CONTROLS = (\{\n[\s\S]*?\n\}|.*)$/m.exec(source)[1]
  const code = source.slice(source.indexOf('"""', 3) + 3).trimStart()
  return { id: name.slice(3, -3), file: name, title, text, question, controls: JSON.parse(controls.replace(/,(\s*[}\]])/g, "$1")), code, source }
}

/** Python's standard library with what is loaded at the start compiled: it halves the time that Python needs for it. */
async function library() {
  const python = await loadPyodide()
  python.FS.writeFile("/in.zip", readFileSync(new URL("node_modules/pyodide/python_stdlib.zip", import.meta.url)))
  python.runPython(read("src/stdlib.py"))
  return python.FS.readFile("/out.zip")
}

rmSync(dist, { recursive: true, force: true })
mkdirSync(dist, { recursive: true })
const bundle = async (entry, options = {}) => {
  const made = await build({
    entryPoints: [new URL(`src/${entry}`, import.meta.url).pathname], bundle: true, minify: true, write: false, format: "iife", target: "es2022",
    loader: { ".py": "text", ".css": "text", ".txt": "text" }, logLevel: "error", ...options,
  })
  return made.outputFiles[0].text
}
const cells = readdirSync(new URL("cells/", import.meta.url)).filter(f => f.endsWith(".py")).sort().map(cell)
const sources = zip(new URL("..", import.meta.url).pathname, "tinyattn")
const style = read("src/style.css") + read("node_modules/uplot/dist/uPlot.min.css")
const hash = text => `'sha256-${createHash("sha256").update(text).digest("base64")}'`
const script = /<script>([\s\S]*?)<\/script>/.exec(read("../tinyattn/draw/microscope.html"))[1]
const policy = (...scripts) => `default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self' data:; manifest-src 'self'; ` +
  `style-src 'self' 'unsafe-inline'; frame-src 'self' blob:; worker-src 'self' blob:; connect-src 'self' ${HOST}; ` +
  `script-src 'self' ${HOST} 'wasm-unsafe-eval' ${scripts.join(" ")}`

// the checker alone, in one file that opens from disk
const inline = text => text.replaceAll("</script", "<\\/script")
const main = inline(await bundle("checker.js", { define: { WORKER: JSON.stringify(read("src/worker.js")), SOURCES: JSON.stringify(sources.toString("base64")) } }))
writeFileSync(join(dist, "check.html"), read("src/check.html").replace("{{policy}}", () => policy(hash(main)))
  .replace("{{style}}", () => style).replace("{{script}}", () => main))

// the lesson
const write = (name, content) => writeFileSync(join(dist, name), content)
write("lesson.js", await bundle("lesson.js", { define: { CELLS: JSON.stringify(cells) } }))
write("worker.js", read("src/worker.js"))
write("style.css", style)
write("tinyattn.zip", sources)
write("python_stdlib.zip", await library())
write("index.html", read("src/index.html").replace("{{policy}}", policy(hash(script))))
cpSync(new URL("cells/", import.meta.url), join(dist, "cells"), { recursive: true, filter: path => !path.includes("__pycache__") })

// the service worker knows what there is to keep
const files = readdirSync(dist).filter(name => name !== "cells").sort()
const version = files.reduce((sum, name) => sum.update(name).update(readFileSync(join(dist, name))), createHash("sha256")).digest("hex").slice(0, 12)
const kept = ["./", ...files].map(name => `new Request("${name}", { cache: "no-cache" })`)
write("sw.js", `const VERSION = "${version}", RUNTIME = "${RUNTIME}", FILES = [${kept.join(", ")}]\n` + read("src/sw.js"))
const size = name => `${name} ${statSync(join(dist, name)).size >> 10} kB`
console.log(`web/dist: ${cells.length} cells, ${files.map(size).join(", ")}`)
