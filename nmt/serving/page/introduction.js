// First screen: what the model is, and example sentences.

import { $, beginningOf, element } from "./elements.js"
import { change, currentModel, state, unchosen } from "./state.js"

const KINDS = { easy: "Easy", long: "Long", unknown: "Rare word" }

// BCP 47 tag of a language code such as pt_BR; "" for another name of a side, such as "source".
// "src" is also the code of a rare language.
export const tagOf = (code) =>
  /^(?!(src|tgt|trg)$)[a-z]{2,3}([_-]\w+)*$/i.test(code) ? code.replaceAll("_", "-") : ""

const RIGHT_TO_LEFT =
  /^[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}\p{Script=Hanifi_Rohingya}]/u

// Writing direction of a text, that of its first letter
export const directionOf = (text) => (RIGHT_TO_LEFT.test(text.match(/\p{L}/u)?.[0]) ? "rtl" : "ltr")

export function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(tagOf(code))
  } catch {
    return code
  }
}

export function showIntroduction() {
  const model = currentModel()
  $("about").replaceChildren(...sentences(model).map((text) => `${text} `))
  const examples = model.examples ?? []
  $("examples").hidden = !examples.length
  $("examples").replaceChildren(
    "Examples: ",
    ...examples.map(({ kind, text }) =>
      element(
        "button",
        {
          type: "button",
          "aria-pressed": text === state.text,
          onclick: () => change({ ...unchosen, text, sentence: 0 }),
        },
        element("b", { textContent: `${KINDS[kind]} ` }),
        element("span", {
          textContent: beginningOf(text, 40),
          lang: tagOf(model.source ?? ""),
          dir: "auto",
        }),
      ),
    ),
  )
}

function sentences(model) {
  const { name, source, target, labels, network, parameters, training, scores, part } = model
  const task = labels
    ? "labels texts"
    : `translates ${languageName(source)} to ${languageName(target)}`
  const size = parameters ? `${count(parameters)} parameters` : ""
  const details = [network, size].filter(Boolean).join(", ")
  const described = `The model ${name} ${task} with a recurrent network${details && ` (${details})`}.`
  const figures = (scores ?? []).map(({ name, score }) => `${score.toFixed(1)} ${name}`).join(", ")
  return [
    described,
    training ? `Training text: ${training}.` : "",
    figures ? `${part === "validation" ? "Validation" : "Test"} score: ${figures}.` : "",
    labels
      ? "Enter a text to see its label, and what hiding each word changes."
      : "Enter a sentence to see how the model translates it, how sure it is, and why.",
  ].filter(Boolean)
}

const count = (number) =>
  number >= 1e6 ? `${(number / 1e6).toFixed(1)} million` : number.toLocaleString("en")
