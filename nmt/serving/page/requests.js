// Requests to the server, or to the network inside an exported page.

import { $ } from "./elements.js"
import { currentModel, state } from "./state.js"

export async function ask(path, fields) {
  if (globalThis.answering) {
    await painted()
    return answering(path, fields)
  }
  // Relative URL, for a server behind a path prefix
  const response = await fetch(`.${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...fields, api_key: $("key").value || undefined }),
  }).catch(() => {
    throw new Error("The page cannot reach its server; try again.")
  })
  const answer = await response.json().catch(() => {
    throw new Error(`The server answered with status ${response.status}; try again.`)
  })
  if (!response.ok) throw new Error(answer.error)
  return answer
}

export const fetched = async (path) =>
  globalThis.answering ? answering(path) : (await fetch(`.${path}`)).json()

// Fields of a request about the sentence that the page shows
export function sentenceFields() {
  const { name, source, target } = currentModel()
  return { q: state.text, sentence: state.sentence, source, target, model: name }
}

// Lets the browser paint the page before a long computation
const painted = () => new Promise((go) => setTimeout(go, 20))
