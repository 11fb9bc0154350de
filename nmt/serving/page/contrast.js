// Two translations compared, and the most similar training sentences.

import { $, element, fixed, percent, say } from "./elements.js"
import { tagOf } from "./introduction.js"
import { ask, sentenceFields } from "./requests.js"
import { currentModel, remember, state } from "./state.js"
import { labelOf } from "./words.js"

// Shows both fields, with the best translation and another one
export function showContrast(answer) {
  const { target } = currentModel()
  $("contrasting").hidden = false
  for (const id of ["this", "that"]) $(id).lang = tagOf(target)
  $("contrasted").replaceChildren()
  const [first, second] = state.contrast ?? [answer.text, answer.others[1]?.text ?? ""]
  $("this").value = first
  $("that").value = second
  if (state.contrast) compare()
}

export function contrast(first, second) {
  $("this").value = first
  $("that").value = second
  return compare(true)
}

export async function compare(step = false) {
  const pair = [$("this").value, $("that").value]
  if (!pair.every((text) => text.trim())) return say("Enter two translations to compare.")
  state.contrast = pair
  remember(step)
  const question = () => JSON.stringify({ ...sentenceFields(), translations: state.contrast })
  const asked = question()
  try {
    const answer = await ask("/contrast", JSON.parse(asked))
    if (question() !== asked) return // the answer is outdated
    say(state.attendTo.length ? "These probabilities ignore the attention that you set by hand." : "")
    const columns = answer.translations.map((translation, k) => probabilities(translation, "AB"[k]))
    $("contrasted").replaceChildren(
      element("div", { className: "both" }, ...columns),
      influences(answer),
    )
  } catch (error) {
    if (question() === asked) say(error.message)
  }
}

// Subwords of a translation with a bar for each probability
function probabilities({ tokens, token_log_probs, log_prob }, name) {
  return element(
    "div",
    {},
    element("p", { textContent: `${name}: log-probability ${fixed(log_prob)}` }),
    element(
      "p",
      { className: "words", lang: tagOf(currentModel().target), dir: "auto" },
      ...tokens.map((piece, i) =>
        element("span", {
          className: "written",
          "--p": Math.exp(token_log_probs[i]),
          textContent: labelOf(piece),
          title: percent(token_log_probs[i]),
        }),
      ),
    ),
  )
}

// Bars to the left for words that support A, to the right for words that support B
function influences({ words, influence }) {
  const greatest = Math.max(...influence.map(Math.abs), 1e-9)
  const order = words
    .map((_, i) => i)
    .sort((a, b) => Math.abs(influence[b]) - Math.abs(influence[a]))
  const rows = order.map((i) => {
    const value = influence[i]
    const bar = element("span", {
      className: value < 0 ? "bar against" : "bar",
      "--p": Math.abs(value) / greatest,
    })
    const figure = fixed(Math.abs(value))
    return element(
      "tr",
      {},
      element("td", { className: "side" }, ...(value >= 0 ? [`${figure} `, bar] : [])),
      element("th", {
        scope: "row",
        textContent: words[i],
        lang: tagOf(currentModel().source),
        dir: "auto",
      }),
      element("td", {}, ...(value < 0 ? [bar, ` ${figure}`] : [])),
    )
  })
  return element(
    "figure",
    {},
    element("figcaption", {
      textContent:
        "Source words, most influential first: how much the advantage of one translation over " +
        "the other shrinks (log-probability) when the word is hidden",
    }),
    element(
      "table",
      { className: "bars" },
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("th", { scope: "col", className: "side", textContent: "supports A" }),
          element("th", { scope: "col", textContent: "Word" }),
          element("th", { scope: "col", textContent: "supports B" }),
        ),
      ),
      element("tbody", {}, ...rows),
    ),
  )
}

// Shows the most similar training sentences, if the server has an index for the model
export async function showNeighbors(isCurrent) {
  if (!currentModel().neighbors) return
  const similar = (await ask("/neighbors", sentenceFields())).neighbors
  if (!isCurrent()) return
  const { source, target } = currentModel()
  $("alike").hidden = false
  $("neighbors").replaceChildren(
    ...similar.map((pair) =>
      element(
        "li",
        {},
        element("span", { textContent: pair.source, lang: tagOf(source), dir: "auto" }),
        element("br"),
        element("span", {
          textContent: pair.target,
          className: "note",
          lang: tagOf(target),
          dir: "auto",
        }),
        element("span", { textContent: ` (${fixed(pair.similarity)})`, className: "note" }),
      ),
    ),
  )
}
