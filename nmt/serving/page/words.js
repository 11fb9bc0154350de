// Rows of source and target words, alternatives of a word, and directed attention.

import { $, element, percent, rove, say } from "./elements.js"
import { directionOf, tagOf } from "./introduction.js"
import { change, currentModel, EOS, state } from "./state.js"
import { confidence, isShown, plain, UNSURE } from "./units.js"

const DRAGGED = "application/x-nmt-word" // type of a dragged word of the translation
const SPELLED = 4 // number of subwords of a word from which the page explains its division
const MOST_SPELLED = 3 // number of words whose division is explained
let explanation = null // response to /explain
let view = null // units of the answer
let chosen = null // unit of the translation whose alternatives are open
let chosenStep = 0 // its subword that an alternative replaces

// Shows both rows. `point` is called with the unit under the pointer, or null.
export function showWords(answer, shownView, point) {
  explanation = answer
  view = shownView
  closeChoices()
  const model = currentModel()
  const source = view.source.map((unit, s) => sourceButton(unit, s))
  const target = view.target.map((unit, t) => targetButton(unit, t, point))
  fill($("source"), source, model.source, answer.sentence, "Source")
  fill($("target"), target, model.target, answer.text, "Translation")
  $("reset").hidden = !state.prefix.length && !state.attendTo.length
  $("notes").replaceChildren(...notes().map((text) => element("li", { textContent: text })))
  showConfidence()
}

function fill(row, buttons, language, text, name) {
  row.replaceChildren(...buttons)
  row.dir = directionOf(text)
  row.lang = tagOf(language)
  row.setAttribute("aria-label", `${name}, ${state.byWord ? "words" : "subwords"}`)
  rove(row, new Map(buttons.map((button, i) => [button, [0, i]])))
}

function wordButton(unit, properties) {
  const text = { type: "button", textContent: unit.text, dir: "auto" }
  const button = element("button", { ...text, ...properties })
  button.classList.toggle("space", unit.isSpaced)
  return button
}

function sourceButton(unit, s) {
  const marks = [
    unit.isUnattended ? "hardly attended to, possibly untranslated" : "",
    unit.isUnknown ? "has characters outside the vocabulary" : "",
  ].filter(Boolean)
  const button = wordButton(unit, {
    title: marks.join("; "),
    onclick: () => chosen !== null && currentModel().attend_to && directAttention(s),
    ondragover: (event) => event.preventDefault(),
    ondrop: (event) => {
      event.preventDefault()
      const unit = event.dataTransfer.getData(DRAGGED)
      if (!unit) return // something else than a word of the translation
      openChoices(Number(unit))
      directAttention(s)
    },
  })
  button.classList.toggle("unattended", Boolean(unit.isUnattended))
  button.classList.toggle("unknown", unit.isUnknown)
  return button
}

function targetButton(unit, t, point) {
  const probability = Math.exp(unit.logProb)
  const directed = state.attendTo.find(([at]) => at >= unit.start && at < unit.end)
  const isUnsure = probability < UNSURE
  const onlyTo = directed
    ? `, attention only to “${view.source.find((other) => directed[1] < other.end)?.text}”`
    : ""
  const button = wordButton(unit, {
    draggable: currentModel().attend_to,
    "--p": probability,
    title: `${isUnsure ? "uncertain, " : ""}${percent(unit.logProb)}${onlyTo}`,
    "aria-expanded": false,
    onclick: () => openChoices(t),
    onmouseenter: () => point(t),
    onfocus: () => point(t),
    onmouseleave: () => point(chosen),
    ondragstart: (event) => event.dataTransfer.setData(DRAGGED, t),
  })
  button.classList.add("written")
  button.classList.toggle("unsure", isUnsure)
  button.classList.toggle("chosen", unit.start < state.prefix.length)
  button.classList.toggle("looked", Boolean(directed))
  return button
}

// Colours the source words by the attention weights of a unit of the translation
export function highlightWords(t) {
  const weights = t === null ? null : view?.attention?.[t]
  ;[...$("source").children].forEach((button, s) =>
    button.style.setProperty("--w", weights?.[s] ?? 0),
  )
}

function showConfidence() {
  const mean = view.meanProbability
  const level = confidence(mean)
  $("confidence").replaceChildren(
    "Confidence: ",
    element("b", { textContent: level, className: level }),
    ` (mean probability of a subword ${percent(Math.log(mean))})`,
  )
}

// Sentences about unknown and divided source words
function notes() {
  const words = view.source.filter((unit) => unit.text !== "</s>")
  const unknown = words.filter((unit) => unit.isUnknown).map((unit) => `“\u2068${unit.text}\u2069”`)
  const divided = words
    .filter((unit) => unit.pieces.length >= SPELLED && !unit.isUnknown)
    .sort((a, b) => b.pieces.length - a.pieces.length)
  const spelled = divided
    .slice(0, MOST_SPELLED)
    .map(({ text, pieces }) => `${text} = ${spelling(pieces)}`)
  const more = divided.length - spelled.length
  return [
    unknown.length
      ? `Characters that are not in the vocabulary, in ${unknown.join(", ")}: the model reads ` +
        "each of them as the symbol <unk> for unknown text."
      : "",
    spelled.length
      ? `Words that are not in the vocabulary are read as subwords: ${spelled.join("; ")}` +
        `${more ? `; and ${more} more` : ""}.`
      : "",
  ].filter(Boolean)
}

const spelling = (pieces) =>
  pieces
    .map(plain)
    .filter((piece) => piece !== "▁")
    .join(" · ")

// Alternatives

function openChoices(t, step = view.target[t].start) {
  chosen = t
  chosenStep = step
  ;[...$("target").children].forEach((button, k) => button.setAttribute("aria-expanded", k === t))
  const unit = view.target[t]
  const advice = currentModel().attend_to
    ? " Or click a source word: then the model can attend only to that word at this step."
    : ""
  const text =
    `Probable subwords here, instead of “${plain(explanation.target[step].piece)}”. ` +
    `A click on one continues the translation from it.${advice}`
  $("choices").replaceChildren(
    ...(unit.end - unit.start > 1 ? [subwordSwitch(t)] : []),
    element("p", { className: "note", textContent: text }),
    element("ol", {}, ...alternatives(step)),
  )
  $("choices").hidden = false
  highlightWords(t)
}

// Buttons that choose the subword of a word to replace
function subwordSwitch(t) {
  const { start, pieces } = view.target[t]
  return element(
    "p",
    {},
    "Subwords: ",
    ...pieces.map((piece, k) =>
      element("button", {
        type: "button",
        textContent: plain(piece),
        "aria-pressed": start + k === chosenStep,
        onclick: () => {
          openChoices(t, start + k)
          $("choices").querySelectorAll("p:first-child button")[k].focus()
        },
      }),
    ),
  )
}

function alternatives(step) {
  const { next, token } = explanation.target[step]
  const likely = next.filter(([id, , logProb]) => isShown(logProb) || id === token)
  return likely.map(([id, piece, logProb]) => {
    const button = element(
      "button",
      { type: "button", "--p": Math.exp(logProb), onclick: () => choose(step, id) },
      element("span", { textContent: labelOf(piece), lang: tagOf(currentModel().target) }),
      element("span", { textContent: percent(logProb) }),
    )
    if (id === token) button.setAttribute("aria-current", "true")
    return element("li", {}, button)
  })
}

// Text of a subword; "·" before a subword that continues a word
export const labelOf = (piece) =>
  piece.startsWith("▁") || piece === "</s>" || !/^[\p{L}\p{N}\p{M}]/u.test(piece)
    ? plain(piece)
    : `·${piece}`

// `returnsFocus`: whether a focus inside the alternatives moves to their word
export function closeChoices(returnsFocus = false) {
  const isInside = $("choices").contains(document.activeElement)
  if (returnsFocus && isInside) $("target").children[chosen]?.focus()
  chosen = null
  $("choices").hidden = true
  for (const button of $("target").children) button.setAttribute("aria-expanded", false)
}

const tokensBefore = (step) => explanation.target.slice(0, step).map((entry) => entry.token)

function choose(step, token) {
  if (token === EOS) return say("You cannot choose the end of the sentence; choose another word.")
  const prefix = [...tokensBefore(step), token]
  const attendTo = state.attendTo.filter(([at]) => at <= step)
  changeAt(chosen, { prefix, attendTo, contrast: null })
}

function directAttention(s) {
  const step = chosenStep
  const { start, end } = view.source[s]
  const pairs = Array.from({ length: end - start }, (_, i) => [step, start + i])
  const attendTo = [...state.attendTo.filter(([at]) => at < step), ...pairs]
  changeAt(chosen, { prefix: tokensBefore(step), attendTo, contrast: null })
}

// Changes the state, and returns the focus to the changed word
async function changeAt(t, values) {
  await change(values, true)
  $("target").children[t]?.focus()
}
