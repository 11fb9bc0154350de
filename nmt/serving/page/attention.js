// Attention weights as a map and as ribbons between the two texts.

import { $, element, fixed, percent, rove, svg } from "./elements.js"
import { tagOf } from "./introduction.js"
import { currentModel } from "./state.js"

const ROW = 26 // height of a word in the ribbons, in pixels
const LETTERS = 18 // longest text of a word in the ribbons
const GAP = 150 // width of the ribbons, in pixels
const THICKEST = 14 // width of the band of weight 1, in pixels
const PHONE = 740 // width of a window below which the ribbons are narrower
const LEAST_WEIGHT = 0.05 // weights below are left out of the ribbons, and have no figure in the map
const HELP = "Point at a cell, or move with the arrow keys, to see its weight."
// Words of letters that stay upright in a vertical line
const UPRIGHT =
  /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff00-\uffef]+$/u
let shown = null // view of the main model

// Shows the maps of a translation. `others`: views of models that were forced to write it
export function showAttention(view, others) {
  shown = view
  const author = currentModel().name
  const caption = others.length ? `${author}, which wrote the translation` : author
  const maps = [
    ...(view.attention ? [map(view, view.attention, caption)] : []),
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

// A map with its caption, and the weight of the cell under the pointer or the focus below it
function map(view, weights, caption) {
  const value = element("p", { className: "note value", textContent: HELP })
  const tell = (t, s) => {
    const texts = `“${view.target[t].text}” attends to “${view.source[s].text}”`
    value.textContent = `${texts}: ${fixed(weights[t][s], 3)}`
  }
  const rows = weights.map((row, t) => mapRow(view.target[t], row, (s) => tell(t, s)))
  const table = element(
    "table",
    { role: "grid", "aria-label": `Attention weights: ${caption}` },
    element("thead", {}, mapHead(view.source)),
    element("tbody", {}, ...rows),
  )
  const cells = rows.flatMap((row, t) =>
    [...row.querySelectorAll("td")].map((cell, s) => [cell, [t, s]]),
  )
  rove(table, new Map(cells))
  return element(
    "figure",
    { className: "map" },
    element("figcaption", { textContent: caption }),
    element("div", { className: "wide" }, table),
    value,
  )
}

function mapHead(units) {
  const lang = tagOf(currentModel().source)
  const heads = units.map(({ text }) =>
    element("th", {
      scope: "col",
      className: UPRIGHT.test(text) ? "upright" : "",
      textContent: text,
      lang,
      dir: "auto",
    }),
  )
  return element("tr", {}, element("td"), ...heads)
}

function mapRow(unit, weights, tell) {
  const lang = tagOf(currentModel().target)
  const cells = weights.map((weight, s) =>
    element("td", {
      "--w": Math.min(1, weight),
      textContent: weight < LEAST_WEIGHT ? "" : fixed(weight).replace(/^0/, ""),
      onmouseenter: () => tell(s),
      onfocus: () => tell(s),
    }),
  )
  const head = element("th", { scope: "row", textContent: unit.text, lang, dir: "auto" })
  const row = element("tr", {}, head, ...cells)
  row.dataset.piece = unit.pieces.join("")
  return row
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
        t !== null && isSameText && rowPlaces[k][0] < places[t][1] && places[t][0] < rowPlaces[k][1]
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
  const model = currentModel()
  const drawing = svg(
    "svg",
    {
      width: right + 16 + widest(target),
      height: ROW * Math.max(source.length, target.length),
      role: "img",
      "aria-label": "Attention weights as bands; the map has the values",
    },
    ...bands(attention, left, right),
    ...labels(source, "s", left - 8, model.source),
    ...labels(target, "t", right + 8, model.target),
  )
  const region = { className: "wide", tabIndex: 0, role: "group", "aria-label": "Ribbons" }
  return element(
    "figure",
    { className: "ribbons" },
    element("figcaption", { textContent: "From source (left) to translation (right)" }),
    element("div", region, drawing),
  )
}

const middle = (i) => ROW * (i + 0.5) // height of the middle of a word

function bands(attention, left, right) {
  const centre = (left + right) / 2
  const band = (weight, s, t) => {
    const [y1, y2] = [middle(s), middle(t)]
    const d = `M${left} ${y1}C${centre} ${y1} ${centre} ${y2} ${right} ${y2}`
    return svg("path", { d, "stroke-width": THICKEST * weight, "data-s": s, "data-t": t })
  }
  return attention.flatMap((row, t) =>
    row.flatMap((weight, s) => (weight < LEAST_WEIGHT ? [] : [band(weight, s, t)])),
  )
}

// Words of one side, "s" or "t"
function labels(units, side, x, code) {
  return units.map((unit, i) => {
    const attributes = { x, y: middle(i), class: side, lang: tagOf(code), [`data-${side}`]: i }
    const label = svg("text", attributes, shortened(unit.text))
    label.addEventListener("mouseenter", () => markRibbons(side, i))
    label.addEventListener("mouseleave", () => markRibbons(side, null))
    return label
  })
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
  drawing
    ?.querySelectorAll(`[data-${side}="${number}"]`)
    .forEach((part) => part.classList.add("now"))
}
