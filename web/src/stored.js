// What a reader writes stays in this browser. Where storing is forbidden, it stays as long as the page.
const here = new Map()

export const stored = {
  get(key) { try { return localStorage.getItem(key) } catch { return here.get(key) ?? null } },
  set(key, text) { try { localStorage.setItem(key, text) } catch { here.set(key, text) } },
}

/** An editor shows what was written under this key, and what another window of the page writes under it. */
export function follow(key, editor) {
  addEventListener("storage", event => event.key === key && event.newValue !== null && event.newValue !== editor.text && (editor.text = event.newValue))
}
