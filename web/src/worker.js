// Python in a worker of its own, so that the page never freezes, and an endless loop can be ended. A classic worker:
// modules do not start from a page that was opened from disk.
let call // the function call(name, JSON of its arguments, emit) -> JSON of bridge.py

async function start({ runtime, sources, bridge }, progress) {
  progress("runtime")
  importScripts(runtime + "pyodide.js")
  const python = await loadPyodide({ indexURL: runtime })
  progress("numpy")
  await python.loadPackage("numpy", { messageCallback: () => {}, checkIntegrity: true })
  progress("tinyattn")
  python.unpackArchive(sources, "zip", { extractDir: python.runPython("import site; site.getsitepackages()[0]") })
  const namespace = python.runPython("{'__name__': 'bridge'}")
  python.runPython(bridge, { globals: namespace })
  call = namespace.get("call")
}

onmessage = async ({ data: { id, name, job } }) => {
  const emit = part => postMessage({ id, part: JSON.parse(part) })
  try {
    if (name === "start") {
      await start(job, stage => postMessage({ id, stage }))
      postMessage({ id, done: null })
    } else postMessage({ id, done: JSON.parse(call(name, JSON.stringify(job), emit)) })
  } catch (error) {
    postMessage({ id, error: String(error.message ?? error) })
  }
}
