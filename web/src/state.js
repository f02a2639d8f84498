// One line that says how far Python is, with a bar while it is being fetched. The words change seldom: they are read aloud.
export const stateLine = line => {
  const words = document.createElement("span"), bar = document.createElement("progress")
  words.setAttribute("role", "status")
  bar.setAttribute("aria-label", "Python is being fetched")
  line.append(words, bar)
  return (state, text, share) => {
    if (words.textContent !== text) words.textContent = text
    line.dataset.state = state
    bar.hidden = state !== "loading"
    if (share === undefined) bar.removeAttribute("value")
    else bar.value = share
  }
}
