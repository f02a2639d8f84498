// Python as the page sees it: jobs go to a worker one at a time. A job that runs too long, or that the reader stops, ends
// its worker; the next job starts another.
import { RUNTIME } from "./runtime.js"

export class Stopped extends Error {}

export class Python {
  /** worker: a function that makes one; sources: () => bytes of the zip of tinyattn; told: what to say of the state. */
  constructor({ worker, sources, bridge, told = () => {} }) {
    Object.assign(this, { make: worker, sources, bridge, told, waiting: new Map(), count: 0, last: Promise.resolve() })
  }

  start() {
    this.ready ??= (async () => {
      this.told("loading", "starting Python …")
      const sources = await this.sources(), started = performance.now()
      this.worker = this.make()
      this.worker.onmessage = ({ data }) => this.hear(data)
      this.worker.onerror = event => this.fail(new Error(event.message || "the worker did not start"))
      const words = { runtime: "fetching Python (8 MB the first time) …", numpy: "fetching NumPy …", tinyattn: "unpacking tinyattn …" }
      await this.post("start", { runtime: RUNTIME, sources: await sources.slice(0), bridge: this.bridge }, { stage: s => this.told("loading", words[s], s) })
      this.told("ready", `Python is ready (${((performance.now() - started) / 1000).toFixed(1)} s)`)
    })().catch(error => {
      this.ready = null
      this.told("failed", "Python did not start: " + error.message)
      throw error
    })
    return this.ready
  }

  post(name, job, { part, stage } = {}) {
    const id = ++this.count
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, part, stage })
      this.worker.postMessage({ id, name, job })
    })
  }

  hear({ id, part, stage, done, error }) {
    const job = this.waiting.get(id)
    if (!job) return
    if (stage) return job.stage?.(stage)
    if (part) return job.part?.(part)
    this.waiting.delete(id)
    error === undefined ? job.resolve(done) : job.reject(new Error(error))
  }

  /** One job after the other. limit: seconds; the clock starts when the job does. */
  call(name, job, { part, limit = 60, begun } = {}) {
    const before = this.last
    this.last = (async () => {
      await before.catch(() => {})
      await this.start()
      begun?.()
      const clock = setTimeout(() => this.stop(`stopped after ${limit} s`), limit * 1000)
      try { return await this.post(name, job, { part }) } finally { clearTimeout(clock) }
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
