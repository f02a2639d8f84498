// One line that says how far Python is, with a bar while it is being fetched.
export const stateLine = line => (state, text, stage) => {
  const part = { runtime: 1, numpy: 2, tinyattn: 3 }[stage] ?? 0
  line.textContent = text + " "
  line.dataset.state = state
  if (state !== "loading") return
  const bar = document.createElement("progress")
  bar.max = 4
  bar.value = part + .5
  bar.setAttribute("aria-label", "loading")
  line.append(bar)
}
