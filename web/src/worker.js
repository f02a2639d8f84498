// Python in a worker of its own, so that the page never freezes, and an endless loop can be ended. A classic worker:
// modules do not start from a page that was opened from disk.
let call // the function call(name, JSON of its arguments, emit) -> JSON of bridge.py

/** Tells of the bytes that fetch brings, as they come. */
function count(told) {
  const plain = self.fetch
  let bytes = 0
  self.fetch = async (...request) => {
    const answer = await plain(...request), copy = answer.clone().body?.getReader()
    const read = async () => {
      for (let piece; copy && !(piece = await copy.read()).done;) told(bytes += piece.value.length)
    }
    read().catch(() => {})
    return answer
  }
}

async function start({ runtime, library, sources, bridge }, progress) {
  count(progress)
  importScripts(runtime + "pyodide.js")
  const python = await loadPyodide({ indexURL: runtime, packages: ["numpy"], ...(library && { stdLibURL: library }) })
  python.setStdin({ error: true }) // nobody answers input()
  python.unpackArchive(sources, "zip", { extractDir: python.runPython("import site; site.getsitepackages()[0]") })
  const namespace = python.runPython("{'__name__': 'bridge'}")
  python.runPython(bridge, { globals: namespace })
  call = namespace.get("call")
  return performance.getEntriesByType("resource").map(entry => entry.name)
}

onmessage = async ({ data: { id, name, job } }) => {
  const emit = part => postMessage({ id, part: JSON.parse(part) })
  try {
    if (name === "start") postMessage({ id, done: await start(job, bytes => postMessage({ id, part: bytes })) })
    else postMessage({ id, done: JSON.parse(call(name, JSON.stringify(job), emit)) })
  } catch (error) {
    postMessage({ id, error: String(error.message ?? error) })
  }
}
