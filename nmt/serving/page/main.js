// Entry of the page: one function shows the page of the current state; events change the state.

import { highlightAttention, showAttention } from "./attention.js"
import { classify } from "./classifier.js"
import { compare, contrast, showContrast, showNeighbors } from "./contrast.js"
import { $, beginningOf, copies, element, say } from "./elements.js"
import { languageName, showIntroduction, tagOf } from "./introduction.js"
import { ask, fetched, sentenceFields } from "./requests.js"
import { change, comparable, currentModel, served, state, unchosen } from "./state.js"
import { onChange, recall, remember } from "./state.js"
import { showTree } from "./tree.js"
import { viewOf } from "./units.js"
import { closeChoices, highlightWords, showWords } from "./words.js"

const SECTIONS = ["looked", "searched", "contrasting", "alike", "classifying"]
let questionNumber = 0 // number of the last request; responses to older requests are dropped
let translated = null // what the page shows: answer of /explain, answers of other models, full text

let waiting = 0 // timer that waits until nothing has been typed for a moment

// Shows the page of the current state
async function refresh(step = false) {
  const number = ++questionNumber
  const isCurrent = () => number === questionNumber
  remember(step)
  showControls()
  if (!state.text.trim()) return clear()
  const busy = setTimeout(() => isCurrent() && setBusy(true), 150)
  let isShown = false
  try {
    if (currentModel().labels) {
      await classify(isCurrent)
      if (isCurrent()) hideSections("classifying")
    } else {
      const answers = await translate()
      if (!isCurrent()) return
      translated = answers
      state.sentence = Math.min(state.sentence, answers.answer.sentences.length - 1)
      say("")
      $("alike").hidden = true
      showTranslation()
      isShown = true
      await showNeighbors(isCurrent)
    }
  } catch (error) {
    if (!isCurrent()) return
    if (!isShown) clear()
    say(error.message)
  } finally {
    clearTimeout(busy)
    if (isCurrent()) setBusy(false)
  }
}

const setBusy = (isBusy) => {
  $("busy").hidden = !isBusy
  document.querySelector("main").setAttribute("aria-busy", isBusy)
}

async function translate() {
  const { prefix, attendTo, beside } = state
  const fields = sentenceFields()
  const answer = await ask("/explain", { ...fields, prefix, attend_to: attendTo })
  const names = comparable()
    .map((model) => model.name)
    .filter((name) => beside.includes(name))
  const others = await Promise.all(
    names.map(async (name) => {
      const forced = await ask("/explain", { ...fields, model: name, translation: answer.text })
      return { ...forced, model: name }
    }),
  )
  const isFree = !prefix.length && !attendTo.length
  const needsText = answer.sentences.length > 1 && isFree
  const text = needsText
    ? (await ask("/translate", { ...fields, sentence: undefined })).translatedText
    : answer.text
  return { answer, others, text }
}

function showTranslation() {
  const { answer, others, text } = translated
  const view = viewOf(answer, state.byWord)
  hideSections("looked", "searched", "contrasting", "alike")
  $("outcome").hidden = false
  $("plain").textContent = text
  showSentences(answer.sentences)
  showWords(answer, view, point)
  showAttention(
    view,
    others.map((other) => viewOf(other, state.byWord)),
  )
  showTree(answer, contrast)
  showContrast(answer)
}

function point(t) {
  highlightWords(t)
  highlightAttention(t)
}

function showSentences(sentences) {
  $("sentences").hidden = sentences.length < 2
  $("sentences").replaceChildren(
    "Sentence to explain: ",
    ...sentences.map((text, i) =>
      element("button", {
        type: "button",
        textContent: beginningOf(text, 30),
        lang: tagOf(currentModel().source),
        dir: "auto",
        "aria-pressed": i === state.sentence,
        onclick: () => change({ ...unchosen, sentence: i }, true),
      }),
    ),
  )
}

// Hides all sections but those named
function hideSections(...names) {
  for (const id of SECTIONS) if (!names.includes(id)) $(id).hidden = true
  $("classifying").hidden = !currentModel().labels
}

function clear() {
  hideSections()
  $("classifying").hidden = true
  $("outcome").hidden = true
  for (const id of ["source", "target", "plain", "notes"]) $(id).replaceChildren()
  closeChoices()
  setBusy(false)
  say("")
}

// Shows the controls of the current model
function showControls() {
  const { labels, source, target } = currentModel()
  if (!waiting && $("text").value !== state.text) $("text").value = state.text
  $("model").value = state.model
  showIntroduction()
  $("translating").classList.toggle("labels", Boolean(labels))
  $("translation").hidden = Boolean(labels)
  // The words of the last translation do not belong to the text of a classifier.
  if (labels) for (const id of ["source", "notes"]) $(id).replaceChildren()
  $("text").lang = labels ? "" : tagOf(source)
  $("plain").lang = labels ? "" : tagOf(target)
  $("text").placeholder = labels ? "Enter a text" : `Enter a sentence (${languageName(source)})`
  $("units").querySelector(`[value=${state.byWord ? "words" : "subwords"}]`).checked = true
  const others = labels ? [] : comparable()
  $("beside").hidden = !others.length
  $("beside").replaceChildren(
    element("legend", { textContent: "Compare attention with" }),
    ...others.map(({ name }) => {
      const isChecked = state.beside.includes(name)
      const box = element("input", { type: "checkbox", value: name, checked: isChecked })
      return element("label", {}, box, ` ${name}`)
    }),
  )
}

// Events

$("text").addEventListener("input", () => {
  clearTimeout(waiting)
  waiting = setTimeout(() => {
    waiting = 0
    if (served.models.length) change({ ...unchosen, text: $("text").value, sentence: 0 })
  }, 250)
})
$("model").addEventListener("change", () => {
  const before = currentModel()
  state.model = $("model").value
  // An example of the model before is replaced by one of this model.
  const isExample = (before.examples ?? []).some(({ text }) => text === state.text)
  const text = (isExample && currentModel().examples?.[0]?.text) || state.text
  change({ ...unchosen, text, sentence: 0 }, true)
})
$("beside").addEventListener("change", () => {
  const boxes = $("beside").querySelectorAll("input:checked")
  change({ beside: [...boxes].map((box) => box.value) })
})
$("units").addEventListener("change", (event) => {
  state.byWord = event.target.value === "words"
  remember(true)
  const typed = [$("this").value, $("that").value]
  if (!translated) return
  showTranslation()
  ;[$("this").value, $("that").value] = typed
})
$("reset").addEventListener("click", () => change(unchosen, true))
$("settings").addEventListener("submit", (event) => event.preventDefault())
$("key").addEventListener("change", () => refresh())
$("contrast").addEventListener("click", () => compare(true))
copies($("link"), () => location.href)
copies($("copy"), () => $("plain").textContent)
addEventListener("popstate", () => {
  recall()
  refresh()
})
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return
  closeChoices(true)
  if (translated) point(null)
})

const label = ({ name, labels, source, target }) =>
  labels ? `${name} (classifier)` : `${name}: ${source} → ${target}`

// Reads what the server has, and shows the first page
async function start() {
  served.models = await fetched("/models")
  served.settings = await fetched("/frontend/settings")
  $("key").parentElement.hidden = !served.settings.keyRequired
  $("model").append(...served.models.map((model) => new Option(label(model), model.name)))
  state.text = $("text").value // typed while the page was loading
  recall()
  const [example] = currentModel().examples ?? []
  if (!state.text && example && !served.settings.keyRequired) state.text = example.text
  onChange(refresh)
  $("legend").open = innerWidth > 740
  document.body.classList.remove("starting")
  $("text").focus()
  await refresh()
}

start().catch((error) => say(`The page cannot reach its server: ${error.message}`))
