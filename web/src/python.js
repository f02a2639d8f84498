// Python as the page sees it: jobs go to a worker one at a time. A job that runs too long, or that the reader stops, ends
// its worker; the next job starts another.
import { BYTES, RUNTIME } from "./runtime.js"

export class Stopped extends Error {}

export class Python {
  /** worker: a function that makes one; sources: () => bytes of the zip of tinyattn; library: where the compiled standard
   *  library is, if not with the runtime; told(state, words, share): where to say how far it is. */
  constructor({ worker, sources, library, bridge, told = () => {} }) {
    Object.assign(this, { make: worker, sources, library, bridge, told, waiting: new Map(), count: 0, last: Promise.resolve() })
  }

  start() {
    this.ready ??= (async () => {
      const started = performance.now()
      this.told("loading", "fetching Python (9 MB, once) …", 0)
      this.bytes ??= await this.sources()
      this.worker = this.make()
      this.worker.onmessage = ({ data }) => this.hear(data)
      this.worker.onerror = event => this.fail(new Error(event.message || "the worker did not start"))
      const part = bytes => bytes < BYTES ? this.told("loading", "fetching Python (9 MB, once) …", bytes / BYTES) : this.told("loading", "starting Python …")
      this.fetched = await this.post("start", { runtime: RUNTIME, library: this.library, sources: this.bytes.slice(0), bridge: this.bridge }, part)
      this.told("ready", `Python is ready (${((performance.now() - started) / 1000).toFixed(1)} s)`)
    })().catch(error => {
      this.ready = null
      const why = /importScripts|Failed to fetch|NetworkError|Load failed/.test(error.message) ? `is there a network? It is fetched from ${new URL(RUNTIME).host}` : error.message
      this.told("failed", `Python did not start: ${why}`)
      throw new Error(`Python did not start: ${why}`)
    })
    return this.ready
  }

  post(name, job, part) {
    const id = ++this.count
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { name, resolve, reject, part })
      this.worker.postMessage({ id, name, job })
    })
  }

  hear({ id, part, done, error }) {
    const job = this.waiting.get(id)
    if (!job) return
    if (part !== undefined) return job.part?.(part)
    this.waiting.delete(id)
    if (error === undefined) return job.resolve(done)
    job.reject(new Error(error))
    if (this.ready && job.name !== "start") this.fail(new Stopped("Python has failed and begins anew")) // it may be in pieces
  }

  /** One job after the other. part: gets what the job emits; limit: seconds; the clock starts when the job does. */
  call(name, job, { part, limit = 60, begun } = {}) {
    const before = this.last
    this.last = (async () => {
      await before.catch(() => {})
      await this.start()
      begun?.()
      const clock = setTimeout(() => this.stop(`stopped after ${limit} s: is there an endless loop?`), limit * 1000)
      try { return await this.post(name, job, part) } finally { clearTimeout(clock) }
    })()
    return this.last
  }

  stop(why = "stopped") { this.fail(new Stopped(why)) }

  fail(error) {
    this.worker?.terminate()
    this.worker = this.ready = null
    const jobs = [...this.waiting.values()]
    this.waiting.clear()
    for (const job of jobs) job.reject(error)
    this.told("idle", error.message)
    if (error instanceof Stopped) this.start().catch(() => {})
  }
}
