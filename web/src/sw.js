// Keeps the page and the runtime, so that the lesson works offline after the first visit.
self.addEventListener("install", event => event.waitUntil((async () => {
  const cache = await caches.open(VERSION)
  await cache.addAll(["./", "lesson.js", "worker.js", "style.css", "tinyattn.zip", "check.html"])
  await self.skipWaiting()
})()))

self.addEventListener("activate", event => event.waitUntil((async () => {
  for (const name of await caches.keys()) if (name !== VERSION && name !== RUNTIME) await caches.delete(name)
  await self.clients.claim()
})()))

self.addEventListener("fetch", event => {
  const url = event.request.url, runtime = url.startsWith(RUNTIME)
  if (event.request.method !== "GET" || (!runtime && new URL(url).origin !== location.origin)) return
  event.respondWith((async () => {
    const cache = await caches.open(runtime ? RUNTIME : VERSION), kept = await cache.match(url, { ignoreVary: true })
    if (kept) return kept
    const answer = await fetch(runtime ? new Request(url, { mode: "cors", credentials: "omit" }) : event.request)
    if (answer.ok) await cache.put(url, answer.clone())
    return answer
  })())
})
