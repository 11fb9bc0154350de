// Classifiers: probabilities of the labels, attention to the words, and the effect of hiding a word.

import { $, element, fixed, rove, say } from "./elements.js"
import { ask } from "./requests.js"
import { served, state } from "./state.js"

const LONGEST = 60 // number of words up to which the page hides each word in turn
const LABELS = 8 // number of labels shown

// Classifies the text of the page. `isCurrent` returns whether the page still shows this text.
export async function classify(isCurrent) {
  const words = state.text.trim().split(/\s+/)
  const hidden = new Set()
  let latest = 0 // number of the last request; responses to older requests are dropped
  const whole = await predict([words.join(" ")])
  const show = async () => {
    const number = ++latest
    const remaining = words.filter((_, i) => !hidden.has(i))
    const characters = (remaining.length + 1) * remaining.join(" ").length // of the request
    const isShort = characters <= (served.settings.charLimit ?? Infinity)
    const isFew = remaining.length < (served.settings.textLimit ?? Infinity)
    const hidesEach = isShort && isFew && remaining.length <= LONGEST
    const shortened = hidesEach ? remaining.map((_, i) => without(remaining, i)) : []
    const [now, ...effects] = await predict([remaining.join(" "), ...shortened])
    if (!isCurrent() || number !== latest) return
    say("")
    showLabels(whole[0], now, hidden.size > 0)
    showEffects(words, hidden, now, effects, (i) => {
      hidden.has(i) ? hidden.delete(i) : hidden.add(i)
      return show().catch((error) => say(error.message))
    })
  }
  await show()
}

const without = (words, i) => words.filter((_, k) => k !== i).join(" ")
const predict = async (texts) => (await ask("/classify", { q: texts, model: state.model })).classes
const share = (p) => `${fixed(100 * p, 1)} %`

function showLabels(whole, now, isChanged) {
  const ranked = Object.entries(whole.probabilities).sort((a, b) => b[1] - a[1])
  const { probabilities, labels } = now
  $("labels").textContent = `Predicted: ${labels.join(", ") || "no label"}`
  $("probabilities").replaceChildren(
    element(
      "tbody",
      {},
      ...ranked.slice(0, LABELS).map(([name, before]) => {
        const after = probabilities[name]
        const text = isChanged ? `${share(before)} → ${share(after)}` : share(after)
        return element(
          "tr",
          {},
          element("th", { scope: "row", textContent: name }),
          element("td", {}, element("span", { className: "bar", "--p": after }), ` ${text}`),
        )
      }),
    ),
  )
}

function showEffects(words, hidden, now, effects, toggle) {
  const remaining = words.map((_, i) => i).filter((i) => !hidden.has(i))
  const hasImportances = now.importances && now.words.length === remaining.length
  const weights = new Map(remaining.map((i, k) => [i, hasImportances ? now.importances[k] : 0]))
  const label = strongest(now)
  const changes = new Map(
    effects.map((effect, k) => [
      remaining[k],
      effect.probabilities[label] - now.probabilities[label],
    ]),
  )
  const most = Math.max(...weights.values(), 1e-9)
  const largest = Math.max(...[...changes.values()].map(Math.abs), 1e-9)
  const buttons = new Map()
  const rows = words.map((text, i) => {
    const button = element("button", {
      type: "button",
      textContent: text,
      dir: "auto",
      "aria-pressed": hidden.has(i),
      title: hidden.has(i) ? "hidden" : "",
      onclick: async () => {
        await toggle(i)
        $("marked").querySelectorAll("tbody button")[i]?.focus()
      },
    })
    buttons.set(button, [i, 0])
    const weight = weights.get(i)
    const effect = changes.get(i)
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, button),
      element(
        "td",
        {},
        ...(hasImportances && weight !== undefined ? bar(weight / most, fixed(weight)) : []),
      ),
      element("td", {}, ...(effect === undefined ? [] : bar(-effect / largest, points(effect)))),
    )
  })
  const heads = ["Word", "Attention weight", `Effect of hiding it on “${label}”, points`]
  $("marked").replaceChildren(
    element(
      "thead",
      {},
      element("tr", {}, ...heads.map((text) => element("th", { scope: "col", textContent: text }))),
    ),
    element("tbody", {}, ...rows),
  )
  rove($("marked"), buttons)
}

const strongest = ({ probabilities }) =>
  Object.keys(probabilities).reduce((a, b) => (probabilities[b] > probabilities[a] ? b : a))

// Change of a probability in percentage points
const points = (change) => `${change > 0 ? "+" : ""}${fixed(100 * change, 1)}`

const bar = (length, text) => [
  element("span", { className: length < 0 ? "bar against" : "bar", "--p": Math.abs(length) }),
  ` ${text}`,
]
