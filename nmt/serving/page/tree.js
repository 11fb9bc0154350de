// Search tree: a row for each hypothesis that the search kept, a column for each step. Dropped
// subwords are folded under their step.

import { $, element, fixed, percent, rove } from "./elements.js"
import { tagOf } from "./introduction.js"
import { currentModel, EOS } from "./state.js"
import { isShown, plain } from "./units.js"
import { labelOf } from "./words.js"

let searchAnswer = null // response to /explain
let children = [] // numbers of the children of each node
let depths = [] // number of steps before each node
let parts = [] // elements of each node: its button, its cell, and the cells above with the line to it

// Shows the search. `contrast` is called with two translations to compare.
export function showTree(answer, contrast) {
  searchAnswer = answer
  const { tree, width } = searchAnswer
  children = tree.map(() => [])
  depths = tree.map(() => 0)
  parts = tree.map(() => [])
  tree.forEach((node, i) => {
    if (node.parent < 0) return
    children[node.parent].push(i)
    depths[i] = depths[node.parent] + 1
  })
  const dropped = droppedByStep()
  $("searched").hidden = false
  $("beam").textContent = explanationOf(tree.length - 1, width, dropped.flat().length)
  const rows = rowsOf()
  const last = Math.max(...rows.flatMap(({ nodes }) => nodes.map((node) => depths[node])))
  const later = dropped.slice(last + 1).flat()
  $("tree").replaceChildren(table(rows, dropped.slice(0, last + 1), later))
  arrange()
  $("node").textContent = ""
  $("others").replaceChildren(
    ...searchAnswer.others.map((other) => otherTranslation(other, contrast)),
  )
}

function explanationOf(tried, width, dropped) {
  const count = (number) => number.toLocaleString("en")
  return (
    `The search tried ${count(tried)} subwords and kept at most ${width} partial translations at ` +
    `each step; it dropped ${count(dropped)}. It keeps the partial translations with the highest ` +
    "total log-probability, so the best subword at one step may still lose. At the end, the " +
    "complete translation with the highest score wins (first row). Before each row are its rank " +
    "and score. A row begins at the step where it differs from the row from which its line comes. " +
    "“+4” opens the four subwords dropped at a step, “·” continues a word, a bar is a probability. " +
    "Click a subword to see what could follow it."
  )
}

// Node numbers of each complete translation, without the nodes of the rows above: each row has the
// nodes, the step of the first node, and the row in which its line begins
function rowsOf() {
  const rowOf = new Map([[0, 0]])
  return searchAnswer.others.map(({ tokens }, row) => {
    const nodes = []
    let at = 0
    let origin = 0
    for (const token of [...tokens, EOS]) {
      at = children[at].find((child) => searchAnswer.tree[child].token === token)
      if (at === undefined) break
      if (rowOf.has(at)) origin = rowOf.get(at)
      else {
        rowOf.set(at, row)
        nodes.push(at)
      }
    }
    return { nodes, start: nodes.length ? depths[nodes[0]] : 0, origin }
  })
}

function droppedByStep() {
  const steps = Array.from({ length: Math.max(...depths) + 1 }, () => [])
  searchAnswer.tree.forEach((node, i) => {
    if (i && node.fate === "left") steps[depths[i]].push(i)
  })
  return steps
}

// dropped: nodes dropped at each step; later: nodes dropped after the last step of the rows
function table(rows, dropped, later) {
  const columns = Array.from({ length: dropped.length - 1 }, (_, k) => k + 1)
  const cells = rows.map(() => columns.map(() => element("td")))
  rows.forEach((nodes, row) => fillCells(cells, nodes, row))
  const title = (textContent) => element("th", { scope: "row", lang: "en", textContent })
  const heads = columns.map((k) => element("th", { scope: "col", textContent: k }))
  const body = rows.map(({ start }, row) => {
    const rank = rankButton(row, start, cells[row][start - 1])
    return element("tr", {}, element("th", { scope: "row" }, rank), ...cells[row])
  })
  const folded = columns.map((k) => element("td", {}, ...droppedWords(dropped[k], `step ${k}`)))
  if (later.length) {
    heads.push(element("th", { scope: "col", lang: "en", textContent: "later" }))
    folded.push(element("td", {}, ...droppedWords(later, "later steps")))
  }
  return element(
    "table",
    { className: "search", lang: tagOf(currentModel().target) },
    element("thead", {}, element("tr", {}, title("Step"), ...heads)),
    element("tbody", {}, ...body, element("tr", {}, title("Dropped"), ...folded)),
  )
}

// Puts the nodes of a row into its cells, with the line from the row in which the row begins
function fillCells(cells, { nodes, start, origin }, row) {
  if (!nodes.length) return
  for (const node of nodes) {
    const cell = cells[row][depths[node] - 1]
    cell.className = row ? "own" : "own best"
    cell.append(nodeButton(node))
    parts[node].push(cell)
  }
  cells[row][depths[nodes.at(-1)] - 1].classList.add("last")
  for (let k = origin; row && k <= row; k++) {
    const cell = cells[k][start - 1]
    cell.classList.add(k === origin ? "fork" : k === row ? "turn" : "pass")
    parts[nodes[0]].push(cell)
  }
}

// Head of a row: rank, score, and the step at which the row begins; a click scrolls to this step
function rankButton(row, start, cell) {
  const button = element("button", {
    type: "button",
    className: "rank",
    lang: "en",
    textContent: `${row + 1}. ${fixed(searchAnswer.others[row].score)}`,
    title: "rank, score, and the step at which the translation differs",
    onclick: () => cell?.scrollIntoView({ inline: "center", block: "nearest" }),
  })
  if (row && start) button.append(element("span", { textContent: `, from ${start}` }))
  return button
}

function nodeButton(i) {
  const node = searchAnswer.tree[i]
  const button = element("button", {
    type: "button",
    textContent: labelOf(node.piece),
    "--p": Math.exp(node.log_prob),
    dir: "auto",
    title: `${percent(node.log_prob)}${node.fate === "left" ? ", dropped" : ""}`,
    onclick: () => describe(i),
    onmouseenter: () => markPath(i),
    onmouseleave: () => markPath(0),
    onfocus: () => markPath(i),
  })
  button.dataset.node = i
  button.classList.add(node.fate)
  parts[i].push(button)
  return button
}

// Button "+4" that opens the subwords dropped at some steps
function droppedWords(nodes, steps) {
  if (!nodes.length) return []
  const list = element("div", { className: "dropped", hidden: true }, ...nodes.map(nodeButton))
  const button = element("button", {
    type: "button",
    className: "more",
    textContent: `+${nodes.length}`,
    "aria-expanded": false,
    "aria-label": `${steps}: ${nodes.length} dropped`,
    onclick: () => {
      list.hidden = !list.hidden
      button.setAttribute("aria-expanded", !list.hidden)
      arrange(button)
    },
  })
  return [button, list]
}

// Makes the visible buttons one tab stop
function arrange(first) {
  const places = new Map()
  $("tree")
    .querySelectorAll("tbody tr")
    .forEach((row, r) =>
      [...row.cells].forEach((cell, c) =>
        [...cell.querySelectorAll("button")]
          .filter((button) => !button.closest("[hidden]"))
          .forEach((button, k) => places.set(button, [r + k, c])),
      ),
    )
  if (places.size) rove($("tree"), places, first)
}

// Colours the path from the start to a node; 0 removes the colour
function markPath(i) {
  $("tree")
    .querySelectorAll(".path, .wire")
    .forEach((part) => part.classList.remove("path", "wire"))
  for (let k = i; k > 0; k = searchAnswer.tree[k].parent)
    for (const part of parts[k]) part.classList.add(isAbove(part, k) ? "wire" : "path")
}

// Whether a cell has only a part of the line to a node, and not the node
const isAbove = (part, i) => part.tagName === "TD" && !part.querySelector(`[data-node="${i}"]`)

// Describes a node below the tree: the partial translation, what could follow, why it was dropped
function describe(i) {
  const { tree, width } = searchAnswer
  const node = tree[i]
  const pieces = []
  for (let k = i; k > 0; k = tree[k].parent) pieces.unshift(tree[k].piece)
  const kept = new Set(children[i].map((child) => tree[child].token))
  const next = node.next
    .filter(([, , logProb]) => isShown(logProb))
    .map(([token, piece, logProb]) => {
      const mark = kept.has(token) || token === EOS ? "" : " (not kept)"
      return `${labelOf(piece)} ${percent(logProb)}${mark}`
    })
    .join(", ")
  const isDropped = node.fate === "left" && !children[i].length
  const least = Math.min(...tree.filter((_, k) => depths[k] === depths[i] + 1).map((one) => one.total))
  const dropped = Number.isFinite(least)
    ? ` Dropped, because no continuation was among the best ${width} (lowest log-probability ` +
      `kept: ${fixed(least)}).`
    : " Not continued, because the search ended here."
  const reason = isDropped ? dropped : ""
  const ending = node.token === EOS ? "Complete." : `Possible next subwords: ${next}.`
  $("node").textContent =
    `“${plain(pieces.join(""))}”: log-probability ${fixed(node.total)}. ${ending}${reason}`
}

function otherTranslation(other, contrast) {
  const button = element("button", {
    type: "button",
    textContent: other.text || "(empty)",
    lang: tagOf(currentModel().target),
    dir: "auto",
    title: "Compare with the best translation",
    onclick: () => contrast(searchAnswer.text, other.text),
  })
  const figures = ` score ${fixed(other.score, 3)}, log-probability ${fixed(other.log_prob)}`
  return element("li", {}, button, element("span", { className: "note", textContent: figures }))
}
