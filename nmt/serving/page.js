// Script of the web page. The state of the page is in the URL after #, so that a link restores it.

const EOS = 3 // id of </s>
const $ = (id) => document.getElementById(id)
const state = {
  text: "",
  model: "",
  sentence: 0,
  prefix: [],
  looks: [],
  beside: [],
  contrast: null,
}
let models = []
let settings = {}
let currentAnswer = null // response of /explain that the page shows
let chosenPlace = null // position in the translation whose alternatives are open
let questionNumber = 0 // number of the last request; responses to older requests are dropped

async function ask(path, fields) {
  if (globalThis.answering) return answering(path, fields) // a page that contains the model
  // Relative URL, for a server behind a path prefix
  const response = await fetch(`.${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      ...fields,
      api_key: $("key").querySelector("input").value || undefined,
    }),
  })
  const answer = await response.json()
  if (!response.ok) throw new Error(answer.error)
  return answer
}

function element(name, properties = {}, ...children) {
  const created = document.createElement(name)
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("--")) created.style.setProperty(key, value)
    else if (key.startsWith("aria-") || key === "scope" || key === "tabindex")
      created.setAttribute(key, value)
    else created[key] = value
  }
  created.append(...children)
  return created
}

const asText = (piece) => piece.replaceAll("▁", " ")
const percent = (logProb) => `${(100 * Math.exp(logProb)).toFixed(1)} %`
const fields = () => {
  const model = models.find((model) => model.name === state.model)
  return {
    q: state.text,
    sentence: state.sentence,
    source: model.source,
    target: model.target,
    model: model.name,
  }
}

// State in the URL

// Writes the state to the URL; `step` adds an entry to the history of the browser
function remember(step) {
  const parameters = new URLSearchParams({ text: state.text, model: state.model })
  if (state.sentence) parameters.set("sentence", state.sentence)
  if (state.prefix.length) parameters.set("prefix", state.prefix.join(","))
  if (state.looks.length)
    parameters.set("looks", state.looks.map((pair) => pair.join(":")).join(","))
  if (state.beside.length) parameters.set("beside", state.beside.join(","))
  if (state.contrast) {
    parameters.set("this", state.contrast[0])
    parameters.set("that", state.contrast[1])
  }
  if (`#${parameters}` !== location.hash)
    history[step ? "pushState" : "replaceState"](null, "", `#${parameters}`)
  $("link").href = `#${parameters}`
}

function recall() {
  const parameters = new URLSearchParams(location.hash.slice(1))
  const numbers = (text, cut) => (text ? text.split(cut).map(Number).filter(Number.isInteger) : [])
  // Without a text in the URL, keep the text that was typed while the page was loading.
  state.text = parameters.get("text") ?? $("text").value
  state.model = models.some((model) => model.name === parameters.get("model"))
    ? parameters.get("model")
    : models[0].name
  state.sentence = Math.max(0, Math.floor(Number(parameters.get("sentence"))) || 0)
  state.prefix = numbers(parameters.get("prefix"), ",")
  state.looks = (parameters.get("looks") ?? "")
    .split(",")
    .filter(Boolean)
    .map((pair) => numbers(pair, ":"))
  state.beside = (parameters.get("beside") ?? "")
    .split(",")
    .filter((name) => models.some((model) => model.name === name))
  state.contrast =
    parameters.has("this") && parameters.has("that")
      ? [parameters.get("this"), parameters.get("that")]
      : null
  $("text").value = state.text
  $("model").value = state.model
}

// Requests and display of responses

async function refresh(step = false) {
  const number = ++questionNumber
  remember(step)
  closeChoices()
  const model = models.find((entry) => entry.name === state.model)
  for (const id of ["looked", "searched", "contrasting", "alike"]) $(id).hidden = true
  $("classifying").hidden = !model.labels
  $("translating").classList.toggle("labels", Boolean(model.labels))
  $("hint").hidden = Boolean(model.labels) || !state.text.trim()
  if (!state.text.trim()) {
    for (const id of ["source", "target", "plain"]) $(id).replaceChildren()
    $("sentences").hidden = $("reset").hidden = true
    return say("")
  }
  try {
    if (model.labels) return await classify(number, new Set())
    const answer = await ask("/explain", { ...fields(), prefix: state.prefix, looks: state.looks })
    const others = await Promise.all(
      state.beside
        .filter((name) => name !== state.model)
        .map((name) =>
          ask("/explain", { ...fields(), model: name, translation: answer.text }).then(
            (explanation) => ({
              ...explanation,
              model: name,
            }),
          ),
        ),
    )
    const isFree = !state.prefix.length && !state.looks.length
    const fullText =
      answer.sentences.length > 1 && isFree
        ? (await ask("/translate", { ...fields(), sentence: undefined })).translatedText
        : answer.text
    if (number !== questionNumber) return
    say("")
    $("plain").textContent = fullText
    show(answer, others)
    if (settings.neighbors) await showNeighbors(number)
  } catch (error) {
    if (number === questionNumber) say(error.message)
  }
}

const say = (text) => {
  $("message").textContent = text
}

function show(answer, others) {
  currentAnswer = answer
  state.sentence = Math.min(state.sentence, answer.sentences.length - 1)
  $("sentences").hidden = answer.sentences.length < 2
  $("sentences").replaceChildren(
    "Sentence to explain: ",
    ...answer.sentences.map((text, i) =>
      element("button", {
        type: "button",
        textContent: text.length > 30 ? `${text.slice(0, 30)}…` : text,
        "aria-pressed": i === state.sentence,
        onclick: () => {
          state.sentence = i
          resetChoices()
          refresh(true)
        },
      }),
    ),
  )
  $("source").replaceChildren(
    ...answer.source.map((piece, i) =>
      wordButton(piece, {
        onclick: () => chosenPlace !== null && directAttention(i),
        ondragover: (event) => event.preventDefault(),
        ondrop: (event) => {
          event.preventDefault()
          chosenPlace = Number(event.dataTransfer.getData("text/plain"))
          directAttention(i)
        },
      }),
    ),
  )
  $("target").replaceChildren(
    ...answer.target.map((step, i) => {
      const button = wordButton(step.piece, {
        "--p": Math.exp(step.log_prob),
        title: percent(step.log_prob),
        draggable: answer.attention !== null,
        onclick: () => openChoices(i),
        onmouseenter: () => highlight(i),
        onfocus: () => highlight(i),
        onmouseleave: () => highlight(chosenPlace),
        ondragstart: (event) => event.dataTransfer.setData("text/plain", i),
      })
      button.classList.toggle("chosen", i < state.prefix.length)
      const directed = state.looks.find(([at]) => at === i)
      button.classList.toggle("looked", Boolean(directed))
      if (directed) button.title += `, attention only to “${answer.source[directed[1]]}”`
      return button
    }),
  )
  $("reset").hidden = !state.prefix.length && !state.looks.length
  showMaps(answer, others)
  showTree(answer)
  $("contrasting").hidden = false
  if (state.contrast) {
    ;[$("this").value, $("that").value] = state.contrast
    compare()
  } else {
    $("this").value = answer.text
    $("that").value = answer.others[1]?.text ?? ""
    $("contrasted").replaceChildren()
  }
}

function wordButton(piece, properties) {
  const button = element("button", {
    type: "button",
    textContent: piece.replaceAll("▁", "") || "▁",
    ...properties,
  })
  button.classList.toggle("space", piece.startsWith("▁") || piece === "</s>")
  return button
}

function highlight(i) {
  const weights = i === null ? null : currentAnswer.attention?.[i]
  $("source")
    .querySelectorAll("button")
    .forEach((button, s) => button.style.setProperty("--w", weights?.[s] ?? 0))
  const places = placesOf(currentAnswer?.target.map((step) => step.piece) ?? [])
  document.querySelectorAll("#maps tbody").forEach((body) => {
    const rows = [...body.rows]
    const rowPlaces = placesOf(rows.map((row) => row.dataset.piece))
    // Another model may divide the same text into other subwords.
    const isSameText = rowPlaces.at(-1)?.[1] === places.at(-1)?.[1]
    rows.forEach((row, t) =>
      row.classList.toggle(
        "now",
        i !== null &&
          isSameText &&
          rowPlaces[t][0] < places[i][1] &&
          places[i][0] < rowPlaces[t][1],
      ),
    )
  })
}

// Character range of each subword in the text; </s> counts as one character
function placesOf(pieces) {
  let end = 0
  return pieces.map((piece) => [end, (end += piece === "</s>" ? 1 : piece.length)])
}

// Alternative subwords and directed attention

function openChoices(i) {
  chosenPlace = i
  $("target")
    .querySelectorAll("button")
    .forEach((button, k) => button.setAttribute("aria-pressed", k === i))
  const step = currentAnswer.target[i]
  const list = element(
    "ol",
    {},
    ...step.next.map(([token, piece, logProb]) => {
      const button = element("button", {
        type: "button",
        textContent: `${asText(piece).trim() || piece}  ${percent(logProb)}`,
        "--p": Math.exp(logProb),
        onclick: () => choose(i, token),
      })
      if (token === step.token) button.setAttribute("aria-current", "true")
      return element("li", {}, button)
    }),
  )
  const advice = currentAnswer.attention
    ? " Or click a source subword to direct all attention of this step to it."
    : ""
  const text = `Choose an alternative to “${asText(step.piece).trim()}”.${advice}`
  $("choices").replaceChildren(element("p", { className: "note", textContent: text }), list)
  $("choices").hidden = false
  highlight(i)
}

function closeChoices() {
  chosenPlace = null
  $("choices").hidden = true
}

function choose(i, token) {
  if (token === EOS)
    return say("The end of the sentence cannot be chosen; choose another subword before it.")
  state.prefix = [...currentAnswer.target.slice(0, i).map((step) => step.token), token]
  state.looks = state.looks.filter(([at]) => at <= i)
  state.contrast = null
  refreshWithFocus(i)
}

// Refreshes the page and restores the focus
async function refreshWithFocus(i) {
  await refresh(true)
  $("target").querySelectorAll("button")[i]?.focus()
}

function directAttention(position) {
  const at = chosenPlace
  state.prefix = currentAnswer.target.slice(0, at).map((step) => step.token)
  state.looks = [...state.looks.filter(([step]) => step < at), [at, position]]
  state.contrast = null
  refreshWithFocus(at)
}

// Attention weights

function showMaps(answer, others) {
  const maps = []
  if (answer.attention)
    maps.push([
      answer.model,
      answer.source,
      answer.target.map((step) => step.piece),
      answer.attention,
    ])
  for (const [h, weights] of (answer.heads ?? []).entries())
    maps.push([
      `${answer.model}, head ${h + 1}`,
      answer.source,
      answer.target.map((step) => step.piece),
      weights,
    ])
  for (const other of others)
    if (other.attention)
      maps.push([
        other.model,
        other.source,
        other.target.map((step) => step.piece),
        other.attention,
      ])
  $("looked").hidden = !maps.length
  $("maps").replaceChildren(
    ...maps.map((parts) =>
      element("div", { className: "wide", tabindex: 0 }, attentionTable(...parts)),
    ),
  )
}

function attentionTable(name, source, target, weights) {
  const head = element(
    "tr",
    {},
    element("th", { scope: "col" }),
    ...source.map((piece) =>
      element("th", { scope: "col", textContent: piece.replaceAll("▁", "") || "▁" }),
    ),
  )
  const rows = weights.map((row, t) => {
    const tableRow = element(
      "tr",
      {},
      element("th", { scope: "row", textContent: target[t].replaceAll("▁", "") || "▁" }),
      ...row.map((weight, s) =>
        element("td", {
          "--w": weight,
          textContent: weight.toFixed(2).slice(weight < 1 ? 1 : 0),
          title: `${target[t]} ← ${source[s]}: ${weight.toFixed(3)}`,
        }),
      ),
    )
    tableRow.dataset.piece = target[t]
    return tableRow
  })
  return element(
    "table",
    {},
    element("caption", { textContent: name }),
    element("thead", {}, head),
    element("tbody", {}, ...rows),
  )
}

// Search tree

function showTree(answer) {
  const { tree, width } = answer
  $("searched").hidden = false
  const dropped = tree.filter((node) => node.fate === "left").length
  $("beam").textContent =
    `Each path is a partial translation. The beam search added ${tree.length - 1} subwords, ` +
    `kept at most ${width} partial translations per step, and pruned ${dropped}. ` +
    "It keeps the partial translations with the highest total log-probability. The complete " +
    "translation with the highest score is bold. Click a subword to see its possible " +
    "successors (keyboard: arrow keys)."
  const children = tree.map(() => [])
  tree.forEach((node, i) => {
    if (node.parent >= 0) children[node.parent].push(i)
  })
  const depth = []
  const height = []
  let next = 0
  const order = (i) => {
    // The best child is on top; a parent is in the row of its first child.
    const ordered = children[i].sort((a, b) => tree[b].total - tree[a].total)
    ordered.sort((a, b) => (tree[b].fate === "written") - (tree[a].fate === "written"))
    ordered.forEach((child) => {
      depth[child] = depth[i] + 1
      order(child)
    })
    height[i] = ordered.length ? height[ordered[0]] : next++
  }
  depth[0] = 0
  order(0)
  const columns = Math.max(...depth) + 1
  const widths = Array(columns).fill(40)
  tree.forEach((node, i) => {
    widths[depth[i]] = Math.max(widths[depth[i]], 9 * node.piece.length + 26)
  })
  const starts = widths.map((_, k) => 8 + widths.slice(0, k).reduce((sum, width) => sum + width, 0))
  const y = (i) => 16 + 22 * height[i]
  const svg = (name, attributes, ...inside) => {
    const created = document.createElementNS("http://www.w3.org/2000/svg", name)
    for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value)
    created.append(...inside)
    return created
  }
  const total = starts[columns - 1] + widths[columns - 1]
  const places = [] // drawn group of each node
  const neighbours = {
    ArrowRight: (i) => children[i][0],
    ArrowLeft: (i) => tree[i].parent,
    ArrowDown: (i, row) => row[row.indexOf(i) + 1],
    ArrowUp: (i, row) => row[row.indexOf(i) - 1],
  }
  const move = (event, i) => {
    const row = tree
      .map((_, k) => k)
      .filter((k) => depth[k] === depth[i])
      .sort((a, b) => height[a] - height[b])
    const next = neighbours[event.key]?.(i, row)
    if (next) {
      event.preventDefault()
      places[next].focus()
    }
  }
  const drawing = svg("svg", {
    width: total,
    height: 22 * next + 12,
    role: "group",
    "aria-label": "Search tree",
  })
  tree.forEach((node, i) => {
    if (!i) return
    const x1 = starts[depth[node.parent]] + widths[depth[node.parent]] - 14
    const x2 = starts[depth[i]] - 4
    const caption = svg("text", {
      x: starts[depth[i]],
      y: y(i) + 4,
      "fill-opacity": node.fate === "left" ? 1 : 0.6 + 0.4 * Math.exp(node.log_prob),
    })
    caption.textContent = asText(node.piece).trim() || node.piece
    const group = svg(
      "g",
      {
        class: node.fate,
        tabindex: node.fate === "written" ? 0 : -1,
        role: "button",
        "aria-label": `${asText(node.piece)}, ${percent(node.log_prob)}, ${node.fate}`,
      },
      svg("path", {
        d: `M${x1} ${y(node.parent)}C${x2 - 4} ${y(node.parent)} ${x1 + 8} ${y(i)} ${x2} ${y(i)}`,
      }),
      caption,
    )
    group.addEventListener("click", () => describeNode(answer, children, i))
    places[i] = group
    group.addEventListener("keydown", (event) => {
      move(event, i)
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault()
        describeNode(answer, children, i)
      }
    })
    drawing.append(group)
  })
  $("tree").replaceChildren(drawing)
  $("node").textContent = ""
  $("others").replaceChildren(
    ...answer.others.map((other) =>
      element(
        "li",
        {},
        element("button", {
          type: "button",
          textContent: other.text,
          title: "Compare with the best translation",
          onclick: () => {
            $("this").value = answer.text
            $("that").value = other.text
            compare(true)
          },
        }),
        ` score ${other.score.toFixed(3)}, log-probability ${other.log_prob.toFixed(2)}`,
      ),
    ),
  )
}

function describeNode(answer, children, i) {
  const { tree } = answer
  const node = tree[i]
  const beginning = []
  for (let k = i; k > 0; k = tree[k].parent) beginning.unshift(asText(tree[k].piece))
  const keptTokens = new Set(children[i].map((child) => tree[child].token))
  const after = node.next
    .map(([token, piece, logProb]) => {
      const mark = keptTokens.has(token) || token === EOS ? "" : " (pruned)"
      return `${asText(piece).trim() || piece} ${percent(logProb)}${mark}`
    })
    .join(", ")
  const sameDepth = tree.filter(
    (other, k) => k !== i && depthOf(tree, k) === depthOf(tree, i) && children[k].length,
  )
  const weakest = Math.min(...sameDepth.map((other) => other.total))
  const reason =
    node.fate === "left" && !children[i].length
      ? ` Pruned, because no continuation was among the ${answer.width} best` +
        (Number.isFinite(weakest) ? ` (lowest log-probability kept: ${weakest.toFixed(2)}).` : ".")
      : ""
  const next = node.token === EOS ? "Complete." : `Possible next subwords: ${after}.`
  $("node").textContent =
    `“${beginning.join("").trim()}”: log-probability ${node.total.toFixed(2)}. ${next}${reason}`
}

function depthOf(tree, i) {
  let steps = 0
  for (let k = i; k > 0; k = tree[k].parent) steps++
  return steps
}

// Training sentences

async function showNeighbors(number) {
  const similar = (await ask("/neighbors", fields())).neighbors
  if (number !== questionNumber) return
  $("alike").hidden = false
  $("neighbors").replaceChildren(
    ...similar.map((pair) =>
      element(
        "li",
        {},
        element("span", { textContent: pair.source }),
        element("br"),
        element("span", {
          className: "note",
          textContent: `${pair.target} (${pair.similarity.toFixed(2)})`,
        }),
      ),
    ),
  )
}

// Contrast of two translations

async function compare(step = false) {
  const pair = [$("this").value, $("that").value]
  if (!pair.every((text) => text.trim())) return say("Enter two translations to compare.")
  state.contrast = pair
  remember(step)
  try {
    const answer = await ask("/contrast", { ...fields(), translations: pair })
    say(state.looks.length ? "The probabilities below are computed without the directed attention." : "")
    const columns = answer.translations.map((translation) =>
      element(
        "div",
        {},
        element("p", {
          textContent: `log-probability ${translation.log_prob.toFixed(2)}`,
        }),
        element(
          "p",
          { className: "words" },
          ...translation.tokens.map((piece, i) =>
            element("span", {
              textContent: `${asText(piece)} `,
              title: percent(translation.token_log_probs[i]),
              style: `opacity:${0.3 + 0.7 * Math.exp(translation.token_log_probs[i])}`,
            }),
          ),
        ),
      ),
    )
    const greatest = Math.max(...answer.influence.map(Math.abs), 1e-9)
    const rows = answer.words.map((text, i) =>
      element(
        "tr",
        {},
        element("th", { scope: "row", textContent: text }),
        element(
          "td",
          {},
          element("span", {
            className: answer.influence[i] < 0 ? "bar against" : "bar",
            style: `width:${(10 * Math.abs(answer.influence[i])) / greatest}rem`,
          }),
          ` ${answer.influence[i] >= 0 ? "supports A" : "supports B"} `,
          Math.abs(answer.influence[i]).toFixed(2),
        ),
      ),
    )
    $("contrasted").replaceChildren(
      element("div", { className: "both" }, ...columns),
      element(
        "table",
        { className: "bars" },
        element("caption", {
          textContent:
            "Influence of each source word: decrease of log p(A) − log p(B) without the word",
        }),
        element("tbody", {}, ...rows),
      ),
    )
  } catch (error) {
    say(error.message)
  }
}

// Classifiers

async function classify(number, off) {
  const words = state.text.trim().split(/\s+/)
  const remaining = words.filter((_, i) => !off.has(i)).join(" ")
  const answer = (await ask("/classify", { q: remaining, model: state.model })).classes
  if (number !== questionNumber) return
  say("")
  $("source").replaceChildren()
  $("target").replaceChildren()
  const ranked = Object.entries(answer.probabilities).sort((a, b) => b[1] - a[1])
  $("labels").textContent =
    `${answer.labels.join(", ") || "no label"}: ` +
    ranked
      .slice(0, 5)
      .map(([name, p]) => `${name} ${p.toFixed(3)}`)
      .join(", ")
  const shares = new Map()
  let position = 0
  words.forEach((_, i) => {
    if (!off.has(i))
      shares.set(
        i,
        answer.words.length === words.length - off.size
          ? (answer.importances?.[position++] ?? 0)
          : 0,
      )
  })
  const greatest = Math.max(...shares.values(), 1e-9)
  $("marked").replaceChildren(
    ...words.map((text, i) => {
      const button = element("button", {
        type: "button",
        textContent: text,
        "aria-pressed": off.has(i),
        style: `background: rgb(var(--accent) / ${(0.6 * (shares.get(i) ?? 0)) / greatest})`,
        onclick: () => {
          const switched = new Set(off)
          off.has(i) ? switched.delete(i) : switched.add(i)
          classify(++questionNumber, switched).catch((error) => say(error.message))
        },
      })
      button.classList.add("space")
      button.classList.toggle("off", off.has(i))
      return button
    }),
  )
}

// Event handlers and start

function resetChoices() {
  state.prefix = []
  state.looks = []
  state.contrast = null
}

function textChanged() {
  resetChoices()
  state.sentence = 0
  refresh()
}

let waiting = 0
$("text").addEventListener("input", () => {
  clearTimeout(waiting)
  waiting = setTimeout(() => {
    if (models.length) {
      state.text = $("text").value
      textChanged()
    }
  }, 250)
})
$("example").addEventListener("click", () => {
  state.text = $("text").value = settings.example
  textChanged()
})
$("model").addEventListener("change", () => {
  state.model = $("model").value
  textChanged()
})
$("reset").addEventListener("click", () => {
  resetChoices()
  refresh(true)
})
$("key").addEventListener("change", () => refresh())
$("contrast").addEventListener("click", () => compare(true))
$("link").addEventListener("click", () => navigator.clipboard?.writeText(location.href))
addEventListener("popstate", () => {
  recall()
  refresh()
})
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    closeChoices()
    highlight(null)
  }
})

const fetched = async (path) =>
  globalThis.answering ? answering(path) : (await fetch(`.${path}`)).json()
models = await fetched("/models")
settings = await fetched("/frontend/settings")
$("key").hidden = !settings.keyRequired
$("example").hidden = !settings.example
$("example").textContent = `Example: ${settings.example}`
$("model").append(
  ...models.map(
    (model) =>
      new Option(
        model.labels
          ? `${model.name} (classifier)`
          : `${model.name}: ${model.source} → ${model.target}`,
        model.name,
      ),
  ),
)
recall()
const translators = models.filter((model) => model.attention)
$("beside").hidden = translators.length < 2
$("beside").append(
  ...translators.map((model) =>
    element(
      "label",
      {},
      element("input", {
        type: "checkbox",
        value: model.name,
        checked: state.beside.includes(model.name),
        onchange: () => {
          state.beside = [...$("beside").querySelectorAll("input:checked")].map((box) => box.value)
          refresh()
        },
      }),
      ` ${model.name}`,
    ),
  ),
)
refresh()
