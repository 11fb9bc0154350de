// Attention weights as a map and as ribbons between the two texts.

import { $, element, fixed, percent, rove, svg } from "./elements.js"
import { tagOf } from "./introduction.js"
import { currentModel } from "./state.js"

const ROW = 26 // height of a word in the ribbons, in pixels
const LETTERS = 18 // longest text of a word in the ribbons
const GAP = 150 // width of the ribbons, in pixels
const PHONE = 740 // width of a window below which the ribbons are narrower
const LEAST_WEIGHT = 0.05 // weights below are left out of the ribbons, and have no figure in the map
const HELP = "Point at a cell, or move with the arrow keys, to see its weight."
let shown = null // view of the main model

// Shows the maps of a translation. `others`: views of models that were forced to write it
export function showAttention(view, others) {
  shown = view
  const author = currentModel().name
  const maps = [
    ...(view.attention ? [map(view, view.attention, author)] : []),
    ...view.heads.map((weights, h) => map(view, weights, `${author}, head ${h + 1}`)),
    ...others.filter((other) => other.attention).map((other) => forcedMap(other, author)),
  ]
  $("looked").hidden = !maps.length
  $("maps").replaceChildren(...maps)
  if (view.attention) maps[0].after(ribbons(view))
}

function forcedMap(view, author) {
  const probability = percent(Math.log(view.meanProbability))
  const caption =
    `${view.model}, forced to write the translation of ${author} ` +
    `(mean probability of a subword ${probability})`
  return map(view, view.attention, caption)
}

function map({ source, target }, weights, caption) {
  const { source: from, target: to } = currentModel()
  const value = element("p", { className: "note value", textContent: HELP })
  const cells = new Map()
  const tell = (t, s) => {
    const texts = `“${target[t].text}” attends to “${source[s].text}”`
    value.textContent = `${texts}: ${fixed(weights[t][s], 3)}`
  }
  const rows = weights.map((row, t) => {
    const tableRow = element(
      "tr",
      {},
      element("th", { scope: "row", textContent: target[t].text, lang: tagOf(to), dir: "auto" }),
      ...row.map((weight, s) => {
        const cell = element("td", {
          "--w": Math.min(1, weight),
          textContent: weight < LEAST_WEIGHT ? "" : fixed(weight).replace(/^0/, ""),
          onmouseenter: () => tell(t, s),
          onfocus: () => tell(t, s),
        })
        cells.set(cell, [t, s])
        return cell
      }),
    )
    tableRow.dataset.piece = target[t].pieces.join("")
    return tableRow
  })
  const heads = source.map((unit) =>
    element("th", { scope: "col", textContent: unit.text, lang: tagOf(from), dir: "auto" }),
  )
  const table = element(
    "table",
    { role: "grid", "aria-label": `Attention weights: ${caption}` },
    element("thead", {}, element("tr", {}, element("td"), ...heads)),
    element("tbody", {}, ...rows),
  )
  rove(table, cells)
  return element(
    "figure",
    { className: "map" },
    element("figcaption", { textContent: caption }),
    element("div", { className: "wide" }, table),
    value,
  )
}

// Marks the row of a unit in all maps, and its ribbons; null marks none
export function highlightAttention(t) {
  const places = placesOf(shown?.target.map((unit) => unit.pieces.join("")) ?? [])
  for (const body of document.querySelectorAll("#maps tbody")) {
    const rows = [...body.rows]
    const rowPlaces = placesOf(rows.map((row) => row.dataset.piece))
    // Another model may divide the same text into other subwords.
    const isSameText = rowPlaces.at(-1)?.[1] === places.at(-1)?.[1]
    rows.forEach((row, k) => {
      const isMarked =
        t !== null &&
        isSameText &&
        rowPlaces[k][0] < places[t][1] &&
        places[t][0] < rowPlaces[k][1]
      row.classList.toggle("now", isMarked)
    })
  }
  markRibbons("t", t)
}

// Character range of each unit in the text; </s> counts as one character
function placesOf(pieces) {
  let end = 0
  return pieces.map((piece) => [end, (end += piece === "</s>" ? 1 : piece.length)])
}

// Ribbons: source words on the left, words of the translation on the right, a band for each weight
function ribbons({ source, target, attention }) {
  const left = 16 + widest(source)
  const right = left + (innerWidth < PHONE ? GAP / 2 : GAP)
  const width = right + 16 + widest(target)
  const height = ROW * Math.max(source.length, target.length)
  const middle = (i) => ROW * (i + 0.5)
  const bands = attention.flatMap((row, t) =>
    row.flatMap((weight, s) => {
      if (weight < LEAST_WEIGHT) return []
      const [y1, y2] = [middle(s), middle(t)]
      const centre = (left + right) / 2
      const d = `M${left} ${y1}C${centre} ${y1} ${centre} ${y2} ${right} ${y2}`
      return [svg("path", { d, "stroke-width": 14 * weight, "data-s": s, "data-t": t })]
    }),
  )
  const words = (units, side, x, code) =>
    units.map((unit, i) => {
      const label = svg(
        "text",
        { x, y: middle(i), class: side, lang: tagOf(code), [`data-${side}`]: i },
        shortened(unit.text),
      )
      label.addEventListener("mouseenter", () => markRibbons(side, i))
      label.addEventListener("mouseleave", () => markRibbons(side, null))
      return label
    })
  const model = currentModel()
  const drawing = svg(
    "svg",
    { width, height, role: "img", "aria-label": "Attention weights as bands; the map has the values" },
    ...bands,
    ...words(source, "s", left - 8, model.source),
    ...words(target, "t", right + 8, model.target),
  )
  return element(
    "figure",
    { className: "ribbons" },
    element("figcaption", { textContent: "From source (left) to translation (right)" }),
    element("div", { className: "wide", tabIndex: 0, role: "group", "aria-label": "Ribbons" }, drawing),
  )
}

// Width of the longest text of units, in pixels
function widest(units) {
  const context = document.createElement("canvas").getContext("2d")
  context.font = "bold 14px system-ui, sans-serif"
  return Math.ceil(Math.max(...units.map(({ text }) => context.measureText(shortened(text)).width)))
}

const shortened = (text) => (text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text)

function markRibbons(side, number) {
  const drawing = document.querySelector(".ribbons svg")
  drawing?.classList.toggle("marked", number !== null)
  drawing?.querySelectorAll(".now").forEach((part) => part.classList.remove("now"))
  if (number === null) return
  drawing?.querySelectorAll(`[data-${side}="${number}"]`).forEach((part) => part.classList.add("now"))
}
