// Words or subwords of a sentence pair: their texts, probabilities and attention weights.

const SPACELESS =
  /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}]/u
export const UNSURE = 0.3 // a word of a lower probability is marked as uncertain
export const UNATTENDED = 0.15 // sum of attention weights below which a source word is dotted
// Limits of the mean probability of a subword, geometric mean; scripts/results/confidence.md
const CONFIDENCE = [
  [0.6, "high"],
  [0.45, "medium"],
  [0, "low"],
]

// Whether an alternative is shown: not one of 0.0 %
export const isShown = (logProb) => logProb > Math.log(0.0005)

export const plain = (piece) => piece.replaceAll("▁", " ").trim() || piece

// Returns what the page shows of an answer of /explain: units of both sides, weights between units
export function viewOf(answer, byWord) {
  const source = unitsOf(answer.source, answer.sentence, byWord)
  const pieces = answer.target.map((step) => step.piece)
  const target = unitsOf(pieces, answer.text, byWord)
  for (const unit of target)
    unit.logProb = sum(answer.target.slice(unit.start, unit.end).map((step) => step.log_prob))
  const attention = answer.attention && between(answer.attention, source, target)
  if (attention)
    source.forEach((unit, s) => {
      const isWord = /[\p{L}\p{N}]/u.test(unit.text) && unit.text !== "</s>"
      unit.isUnattended = isWord && sum(attention.map((row) => row[s])) < UNATTENDED
    })
  return {
    model: answer.model,
    source,
    target,
    attention,
    heads: (answer.heads ?? []).map((weights) => between(weights, source, target)),
    meanProbability: meanProbability(answer.target),
  }
}

// Geometric mean of the probabilities of the steps of a translation
export const meanProbability = (steps) =>
  Math.exp(sum(steps.map((step) => step.log_prob)) / steps.length)

export const confidence = (probability) => CONFIDENCE.find(([least]) => probability >= least)[1]

const sum = (values) => values.reduce((a, b) => a + b, 0)

// Groups subwords into units: start and end in the list of subwords, text, whether a space precedes
function unitsOf(pieces, text, byWord) {
  const units = []
  pieces.forEach((piece, i) => {
    if (!byWord || !i || begins(pieces, i))
      units.push({ start: i, end: i, isSpaced: piece.startsWith("▁") || piece === "</s>" })
    units.at(-1).end = i + 1
  })
  for (const unit of units) {
    unit.pieces = pieces.slice(unit.start, unit.end)
    unit.text = plain(unit.pieces.join(""))
    unit.isUnknown = unit.pieces.includes("<unk>")
  }
  if (byWord) spell(units, text)
  return units
}

// Whether a subword begins a word. In scripts without spaces, each subword is a word. A subword of
// only spaces belongs to the next word, and at the end to the last word.
function begins(pieces, i) {
  const [before, piece] = [pieces[i - 1], pieces[i]]
  if (piece === "</s>") return true
  if (isSpace(before)) return false
  if (isSpace(piece)) return pieces.slice(i).find((next) => !isSpace(next)) !== "</s>"
  return piece.startsWith("▁") || SPACELESS.test(piece) || SPACELESS.test([...before].at(-1) ?? "")
}

const isSpace = (piece) => /^▁+$/.test(piece)

// Replaces the texts of units by the words of the text, which have no unknown symbols
function spell(units, text) {
  const words = text.trim().split(/\s+/)
  const starts = units.filter((unit, i) => unit.text !== "</s>" && (!i || unit.isSpaced))
  if (starts.length !== words.length) return
  starts.forEach((unit, k) => {
    const next = units[units.indexOf(unit) + 1]
    if (!next || next.isSpaced) unit.text = words[k]
  })
}

// Weights between units: the sum over the source subwords, the mean over the target subwords
function between(weights, source, target) {
  return target.map(({ start, end }) =>
    source.map((unit) => {
      const rows = weights.slice(start, end)
      return sum(rows.map((row) => sum(row.slice(unit.start, unit.end)))) / (end - start)
    }),
  )
}
