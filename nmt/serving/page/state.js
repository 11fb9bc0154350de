// State of the page. It is in the URL after #, so that a link restores the view.

export const EOS = 3 // id of </s>
export const state = {
  text: "",
  model: "",
  sentence: 0,
  byWord: true,
  prefix: [],
  attendTo: [],
  beside: [],
  contrast: null,
}
export const served = { models: [], settings: {} } // what the server has
export const currentModel = () => served.models.find((model) => model.name === state.model)

// Models whose attention can be compared with that of the current model
export const comparable = () => {
  const { name, source, target } = currentModel()
  return served.models.filter(
    (model) =>
      model.attention && model.name !== name && model.source === source && model.target === target,
  )
}

let listener = () => {}
export const onChange = (refresh) => (listener = refresh)

// Changes the state, and shows the page of the new state; `step` adds an entry to the history
export function change(values, step = false) {
  Object.assign(state, values)
  return listener(step)
}

export const unchosen = { prefix: [], attendTo: [], contrast: null }

// Writes the state to the URL
export function remember(step) {
  const parameters = new URLSearchParams({ text: state.text, model: state.model })
  if (state.sentence) parameters.set("sentence", state.sentence)
  if (!state.byWord) parameters.set("units", "subwords")
  if (state.prefix.length) parameters.set("prefix", state.prefix.join(","))
  if (state.attendTo.length)
    parameters.set("attend_to", state.attendTo.map((pair) => pair.join(":")).join(","))
  for (const name of state.beside) parameters.append("beside", name)
  if (state.contrast) {
    parameters.set("this", state.contrast[0])
    parameters.set("that", state.contrast[1])
  }
  if (`#${parameters}` !== location.hash)
    history[step ? "pushState" : "replaceState"](null, "", `#${parameters}`)
}

// Reads the state from the URL. Without a text in the URL, the text of the state stays.
export function recall() {
  const parameters = new URLSearchParams(location.hash.slice(1))
  const numbers = (text, cut) => (text ? text.split(cut).map(Number).filter(Number.isInteger) : [])
  const isServed = (name) => served.models.some((model) => model.name === name)
  state.text = parameters.get("text") ?? state.text
  const name = parameters.get("model")
  state.model = isServed(name) ? name : served.models[0].name
  state.sentence = Math.max(0, Math.floor(Number(parameters.get("sentence"))) || 0)
  state.byWord = parameters.get("units") !== "subwords"
  state.prefix = numbers(parameters.get("prefix"), ",")
  state.attendTo = (parameters.get("attend_to") ?? "")
    .split(",")
    .filter(Boolean)
    .map((pair) => numbers(pair, ":"))
  state.beside = parameters.getAll("beside").filter(isServed)
  state.contrast =
    parameters.has("this") && parameters.has("that")
      ? [parameters.get("this"), parameters.get("that")]
      : null
}
