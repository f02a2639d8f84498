// Keeps the page and the runtime, so that the lesson works offline after the first visit. The page says which files of the
// runtime it has fetched; they come from the browser's own cache then, after the first result, which waits for nothing.
self.addEventListener("install", event => event.waitUntil((async () => {
  const cache = await caches.open(VERSION)
  await cache.addAll(FILES)
  await self.skipWaiting()
})()))

self.addEventListener("activate", event => event.waitUntil((async () => {
  for (const name of await caches.keys()) if (name !== VERSION && name !== RUNTIME) await caches.delete(name)
})()))

self.addEventListener("message", event => event.waitUntil((async () => {
  const cache = await caches.open(RUNTIME)
  for (const url of event.data.filter(url => url.startsWith(RUNTIME)))
    if (!await cache.match(url)) await cache.add(new Request(url, { mode: "cors", credentials: "omit" }))
  event.source.postMessage("kept")
})()))

self.addEventListener("fetch", event => {
  const { url, method } = event.request
  if (method !== "GET" || !(url.startsWith(RUNTIME) || url.startsWith(self.registration.scope))) return
  event.respondWith((async () => {
    const kept = await caches.match(url, { ignoreVary: true })
    return kept ?? fetch(event.request)
  })())
})
