// Responses to the requests of the page, computed in the browser as in nmt/serving/answers.py.

const model = JSON.parse(document.getElementById("model-settings").textContent)
const weights = unpacked(model.weights, document.getElementById("model-weights").textContent)
const kernels = new WebAssembly.Instance(new WebAssembly.Module(assembled([1, 5])), {
  js: { memory },
}).exports
const network = new Network(model, weights)
const source = new Tokenizer(model.source)
const target = model.target ? new Tokenizer(model.target) : source
const beam = new Beam(network, model.search)
const rounded = (x) => Math.round(1e4 * x) / 1e4

function memoryOf(line) {
  const ids = source.encode(line)
  if (ids.length > model.longest)
    throw new Error(
      `the sentence has ${ids.length} tokens; the page translates at most ${model.longest}`,
    )
  return {
    ids,
    memory: network.encode(ids),
    limit: Math.floor(model.lengthFactor * ids.length) + model.lengthOffset,
  }
}

function translated(line, width = model.search.width) {
  if (!source.encode(line).length) return ""
  const { memory, limit } = memoryOf(line)
  const { hypotheses } = new Beam(network, { ...model.search, width }).search(memory, { limit })
  return target.decode(hypotheses[0].tokens)
}

// Sentence ends, as in nmt/data/documents.py: a line break ends a sentence. A full stop after an
// abbreviation or before a lowercase letter does not.
const ends = () => new RegExp(model.sentenceEnd.replaceAll("\\s", WHITE), "g")
const georgian = /[\u10d0-\u10ff]/ // sentences begin with lowercase letters
const abbreviation = new RegExp(`^(?:${model.abbreviation})$`, "iu")

function sentencesOf(text) {
  return text.split(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/).flatMap((line) => {
    const parts = []
    let begin = 0
    for (const match of line.matchAll(ends())) {
      const end = match.index + match[0].length
      const next = line.slice(end).match(/./su)?.[0] ?? ""
      const word = wordsOf(line.slice(begin, match.index)).at(-1) ?? ""
      const hasCase = next !== next.toUpperCase() && !georgian.test(next)
      const isLowercase = hasCase && next === next.toLowerCase()
      const isAbbreviation = abbreviation.test(word.replace(/^[(["'“„«]+/, ""))
      if (word.endsWith(".") && (isLowercase || isAbbreviation)) continue
      parts.push(trimmed(line.slice(begin, end)))
      begin = end
    }
    return [...parts, trimmed(line.slice(begin))].filter(Boolean).flatMap(shortened)
  })
}

// Divides a line at spaces into parts of at most `model.characters` characters (code points)
function shortened(line) {
  const characters = [...line]
  if (characters.length <= model.characters) return [line]
  const space = characters.lastIndexOf(" ", model.characters)
  const end = space > 0 ? space : model.characters
  const rest = characters.slice(end).join("").trimStart()
  return [characters.slice(0, end).join(""), ...shortened(rest)]
}

function explained({ q, sentence = 0, prefix = [], attend_to: attendTo = [], translation }) {
  const sentences = sentencesOf(q)
  const line = sentences[Math.min(sentence, sentences.length - 1)]
  if (!line) throw new Error("text: contains no words; enter a sentence")
  const { ids, memory, limit } = memoryOf(line)
  if (attendTo.some(([step, position]) => !(step >= 0 && position >= 0 && position <= ids.length)))
    throw new Error(
      `attend_to: source positions must be from 0 to ${ids.length} (the end-of-sentence token), and decoder steps must be at least 0`,
    )
  const forcedTokens = translation?.trim() ? target.encode(translation) : null
  const prefixTokens = forcedTokens ?? prefix
  const { hypotheses, nodes } = beam.search(memory, {
    limit: forcedTokens
      ? forcedTokens.length
      : Math.max(limit, prefixTokens.length && prefixTokens.length + 10),
    best: model.search.width,
    prefix: prefixTokens,
    attendTo,
  })
  if (!hypotheses.length) throw new Error("prefix: the search found no translation; shorten the prefix")
  const children = new Map(nodes.map((node, i) => [`${node.parent} ${node.token}`, i]))
  let bestPath = null
  hypotheses.forEach(({ tokens }, k) => {
    const path = [0]
    for (const token of tokens) path.push(children.get(`${path.at(-1)} ${token}`))
    const last = nodes[path.at(-1)]
    nodes.push({
      parent: path.at(-1),
      token: EOS,
      logProb: last.after[EOS],
      total: last.total + last.after[EOS],
      fate: "left",
      after: [],
    })
    path.push(nodes.length - 1)
    for (const i of path) if (nodes[i].fate === "left") nodes[i].fate = k ? "finished" : "written"
    bestPath ??= path
  })
  const following = (node, count) =>
    beam
      .most(node.after, count)
      .filter((word) => node.after[word] > -Infinity)
      .map((word) => [word, target.piece(word), rounded(node.after[word])])
  const steps = bestPath.slice(1).map((i, k) => ({
    token: nodes[i].token,
    piece: target.piece(nodes[i].token),
    log_prob: rounded(nodes[i].logProb),
    next: following(nodes[bestPath[k]], TOP),
  }))
  const attends = nodes[0].seen !== undefined
  const heads =
    attends && model.heads > 1
      ? Array.from({ length: model.heads }, (_, h) =>
          bestPath
            .slice(0, -1)
            .map((i) => nodes[i].seen.weights[h].map((x) => rounded(model.heads * x))),
        )
      : null
  return {
    model: model.name,
    sentences: sentences,
    sentence: line,
    text: target.decode(hypotheses[0].tokens),
    source: [...ids.map((id) => source.piece(id)), "</s>"],
    target: steps,
    heads,
    attention: attends ? bestPath.slice(0, -1).map((i) => nodes[i].seen.shown.map(rounded)) : null,
    tree: nodes.map((node) => ({
      parent: node.parent,
      token: node.token,
      piece: target.piece(node.token),
      fate: node.fate,
      log_prob: rounded(node.logProb),
      total: rounded(node.total),
      next: following(node, 5),
    })),
    path: bestPath,
    width: model.search.width,
    others: hypotheses.map((hypothesis) => ({
      text: target.decode(hypothesis.tokens),
      score: rounded(hypothesis.score),
      log_prob: rounded(hypothesis.logProb),
      tokens: hypothesis.tokens,
    })),
  }
}

// Log-probabilities of the tokens of a given translation (forced decoding)
function forced(ids, tokens) {
  const memory = network.encode(ids)
  let state = network.start(memory)
  let word = BOS
  return [...tokens, EOS].map((next) => {
    const { logProbs, states } = network.step([word], [state], memory)
    state = states[0]
    word = next
    return logProbs[0][next]
  })
}

function contrasted({ q, sentence = 0, translations }) {
  const sentences = sentencesOf(q)
  const line = sentences[Math.min(sentence, sentences.length - 1)]
  const ids = source.encode(line ?? "")
  if (!ids.length) throw new Error("text: contains no words; enter a sentence")
  const tokens = translations.map((text) => target.encode(text))
  const logProbs = tokens.map((targetIds) => forced(ids, targetIds))
  const total = (values) => values.reduce((a, b) => a + b, 0)
  const margin = total(logProbs[0]) - total(logProbs[1])
  // Only these spaces begin a subword with ▁; a no-break space does not.
  const words = line.split(/[ \t-\r\x1c-\x1f\x85]+/).filter(Boolean)
  let number = -1
  const wordOf = ids.map((id) => {
    if (number < 0 || source.piece(id).startsWith(SPACE)) number++
    return number
  })
  const influence = words.map((_, w) => {
    // Replace the subwords of the word by the unknown token.
    const occluded = ids.map((id, i) => (wordOf[i] === w ? UNK : id))
    return rounded(
      margin - (total(forced(occluded, tokens[0])) - total(forced(occluded, tokens[1]))),
    )
  })
  return {
    model: model.name,
    words,
    influence,
    translations: translations.map((text, k) => ({
      text,
      log_prob: rounded(total(logProbs[k])),
      tokens: [...tokens[k].map((id) => target.piece(id)), "</s>"],
      token_log_probs: logProbs[k].map(rounded),
    })),
  }
}

// Computes results one after another; the page stays responsive between two results
async function inTurn(items, answer) {
  const results = []
  for (const item of items) {
    results.push(await answer(item))
    await (globalThis.scheduler?.yield?.() ?? new Promise((go) => setTimeout(go)))
  }
  return results
}

// Returns the response to a request of the page, or throws an Error
globalThis.answering = async (path, fields) => {
  const answers = {
    "/models": () => [
      {
        name: model.name,
        source: model.languages[0],
        target: model.languages[1],
        attention: model.score !== "none",
        attend_to: model.score !== "none",
        ...model.facts,
      },
    ],
    "/frontend/settings": () => ({
      keyRequired: false,
      neighbors: false,
    }),
    "/explain": () => explained(fields),
    "/contrast": () => contrasted(fields),
    "/pieces": () => fields.q.map((line) => [source.encode(line), target.encode(line)]),
    "/text": () => fields.q.map((ids) => target.decode(ids)),
    "/translate": async () => {
      const texts = Array.isArray(fields.q) ? fields.q : fields.q.split("\n").map(sentencesOf)
      const results = await inTurn(texts, (text) =>
        Array.isArray(text)
          ? inTurn(text, (line) => translated(line))
          : translated(text, fields.width),
      )
      return {
        translatedText: Array.isArray(fields.q)
          ? results
          : results.map((sentences) => sentences.join(" ")).join("\n"),
      }
    },
  }
  return answers[path]()
}
