// Elements of the page: creation, numbers as text, copy buttons, movement by arrow keys.

export const $ = (id) => document.getElementById(id)

// Creates an element. Keys that begin with "--" are CSS variables; `data` sets data attributes.
export function element(name, properties = {}, ...children) {
  const created = document.createElement(name)
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("--")) created.style.setProperty(key, value)
    else if (key.includes("-") || ["scope", "role", "lang", "dir"].includes(key))
      created.setAttribute(key, value)
    else created[key] = value
  }
  created.append(...children)
  return created
}

export function svg(name, attributes = {}, ...children) {
  const created = document.createElementNS("http://www.w3.org/2000/svg", name)
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value)
  created.append(...children)
  return created
}

// Number with a fixed count of decimals and a typographic minus sign
export const fixed = (value, decimals = 2) => value.toFixed(decimals).replace("-", "−")
export const percent = (logProb) => `${(100 * Math.exp(logProb)).toFixed(1)} %`

// Shows an error or a notice at the top of the page; "" removes it
export const say = (text) => {
  $("message").textContent = text
}

// The first letters of a text, with an ellipsis if there are more
export function beginningOf(text, length) {
  const letters = [...text] // an emoji is one letter, but two UTF-16 units
  return letters.length > length ? `${letters.slice(0, length).join("").trim()}…` : text
}

// Copies the text that `textOf` returns, and shows "Copied" on the button for a moment
export function copies(button, textOf) {
  const label = button.textContent
  button.addEventListener("click", async () => {
    button.textContent = (await copied(textOf())) ? "Copied" : "Copying failed"
    setTimeout(() => (button.textContent = label), 1500)
  })
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    // A page without HTTPS has no clipboard interface; the browser copies the selected text.
    const area = element("textarea", { value: text })
    document.body.append(area)
    area.select()
    const succeeded = document.execCommand("copy")
    area.remove()
    return succeeded
  }
}

const roving = new WeakMap() // containers of `rove`, to remove the listener of a former call

// Makes the items of a container one tab stop. Arrow keys, Home and End move between the items.
// places: Map from an element to its [row, column]; `first` is the element that gets the tab stop
export function rove(container, places, first = places.keys().next().value) {
  let current = first
  for (const item of places.keys()) item.tabIndex = item === first ? 0 : -1
  roving.get(container)?.abort()
  const replaced = new AbortController()
  roving.set(container, replaced)
  const moveStop = ({ target }) => {
    if (!places.has(target) || target === current) return
    current.tabIndex = -1
    target.tabIndex = 0
    current = target
  }
  container.addEventListener("focusin", moveStop, { signal: replaced.signal })
  container.onkeydown = (event) => {
    const next = places.has(event.target) && neighbour(container, places, event)
    if (!next) return
    event.preventDefault()
    next.focus()
  }
}

// Nearest item in the direction of the pressed key
function neighbour(container, places, { target, key }) {
  const [row, column] = places.get(target)
  const isMirrored = getComputedStyle(container).direction === "rtl"
  const forward = isMirrored ? "ArrowLeft" : "ArrowRight"
  const backward = isMirrored ? "ArrowRight" : "ArrowLeft"
  const distances = {
    [forward]: ([r, c]) => (r === row && c > column ? c - column : Infinity),
    [backward]: ([r, c]) => (r === row && c < column ? column - c : Infinity),
    ArrowDown: ([r, c]) => (r > row ? 1e4 * (r - row) + Math.abs(c - column) : Infinity),
    ArrowUp: ([r, c]) => (r < row ? 1e4 * (row - r) + Math.abs(c - column) : Infinity),
    Home: ([r, c]) => (r === row ? c : Infinity),
    End: ([r, c]) => (r === row ? -c : Infinity),
  }
  const distance = distances[key]
  if (!distance) return null
  let nearest = null
  let least = Infinity
  for (const [item, place] of places)
    if (distance(place) < least) {
      nearest = item
      least = distance(place)
    }
  return nearest
}
