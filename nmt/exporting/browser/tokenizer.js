// Conversion between text and subwords as in SentencePiece (Kudo & Richardson 2018), for models of
// type unigram, bpe, char and word.

const PAD = 0
const UNK = 1
const BOS = 2
const EOS = 3
const SPACE = "▁"

// White space of Python: JavaScript's \s has U+FEFF instead of U+001C to U+001F and U+0085
const WHITE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]"
const wordsOf = (text) => text.split(new RegExp(`${WHITE}+`)).filter(Boolean)
const trimmed = (text) => text.replace(new RegExp(`^${WHITE}+|${WHITE}+$`, "g"), "")

// Decodes UTF-8; each byte of an invalid sequence becomes �
function read(bytes) {
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })
  let text = ""
  for (let at = 0, size; at < bytes.length; at += size) {
    size = [
      [0xf0, 4],
      [0xe0, 3],
      [0xc0, 2],
      [0, 1],
    ].find(([least]) => bytes[at] >= least)[1]
    try {
      text += strict.decode(Uint8Array.from(bytes.slice(at, at + size)))
    } catch {
      text += "�"
      size = 1
    }
  }
  return text
}

class Tokenizer {
  // model: kind, pieces [[subword, score, type]], lowercase, byWord, and trims and begins, which are
  // SentencePiece's settings for spaces
  constructor(model) {
    Object.assign(this, model)
    this.ids = new Map()
    this.bytes = new Map()
    this.longest = 1
    this.defined = [] // subwords that are never divided
    let least = Infinity
    model.pieces.forEach(([piece, score, type], id) => {
      if (type === "byte") this.bytes.set(parseInt(piece.slice(3, 5), 16), id)
      if (type !== "normal" && type !== "defined") return
      this.ids.set(piece, id)
      this.longest = Math.max(this.longest, [...piece].length)
      if (type === "normal") least = Math.min(least, score)
      else this.defined.push(piece)
    })
    this.unknown = Math.fround(least - 10) // score of an unknown character
    this.defined.sort((a, b) => b.length - a.length)
  }

  encode(line) {
    let text = [...line]
      .map((letter) => (/[\t-\r\x1c-\x1f\x85]/.test(letter) ? " " : letter))
      .join("")
    if (!trimmed(text)) return []
    if (this.lowercase) text = text.toLowerCase()
    const parts = this.byWord ? wordsOf(text) : [text]
    return parts.flatMap((part) => this.cut(this.normalized(part)))
  }

  // Returns the text with ▁ before the first word and between words
  normalized(text) {
    if (this.trims) text = text.replace(/^ +| +$/g, "").replace(/ +/g, " ")
    text = ((this.begins && text ? " " : "") + text).replaceAll(" ", SPACE)
    return this.trims ? text.replace(/▁+$/, "") : text
  }

  cut(text) {
    const letters = [...text]
    const pieces = {
      unigram: () => this.likeliest(letters),
      bpe: () => this.divided(text).flatMap((part) => this.merged(part)),
      char: () => this.divided(text).flat(),
      word: () => text.split(/(?=▁)/).filter(Boolean),
    }[this.kind]()
    const ids = []
    let before = false
    for (const piece of pieces) {
      const id = this.ids.get(piece)
      if (id === undefined && this.bytes.size) {
        ids.push(...[...new TextEncoder().encode(piece)].map((byte) => this.bytes.get(byte)))
      } else if (id !== undefined || !before) ids.push(id ?? UNK) // consecutive unknown characters share a token
      before = id === undefined
    }
    return ids
  }

  // Unigram: the segmentation with the highest sum of scores (Viterbi), in float32 as SentencePiece
  likeliest(letters) {
    const best = [{ score: 0 }]
    for (let start = 0; start < letters.length; start++) {
      const before = best[start].score
      let alone = false
      let piece = ""
      const offer = (end, score) => {
        const total = Math.fround(score + before)
        if (best[end] === undefined || total > best[end].score) best[end] = { score: total, start }
      }
      for (let end = start + 1; end <= Math.min(letters.length, start + this.longest); end++) {
        piece += letters[end - 1]
        const id = this.ids.get(piece)
        if (id === undefined) continue
        alone ||= end === start + 1
        offer(end, this.pieces[id][1])
      }
      if (!alone) offer(start + 1, this.unknown)
    }
    const pieces = []
    for (let end = letters.length; end > 0; end = best[end].start)
      pieces.unshift(letters.slice(best[end].start, end).join(""))
    return pieces
  }

  // Returns lists of letters between the defined subwords, each of which is a list of its own
  divided(text) {
    const escaped = this.defined.map((piece) => piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
    if (!escaped.length) return [[...text]]
    const parts = text.split(new RegExp(`(${escaped.join("|")})`, "u"))
    return parts.map((part, i) => (i % 2 ? [part] : [...part]))
  }

  // BPE: merges adjacent symbols to a subword, the merge with the best score first
  merged(letters) {
    const symbols = [...letters]
    for (;;) {
      let best = -1
      let most = -Infinity
      for (let i = 0; i + 1 < symbols.length; i++) {
        const id = this.ids.get(symbols[i] + symbols[i + 1])
        if (id !== undefined && this.pieces[id][1] > most) {
          best = i
          most = this.pieces[id][1]
        }
      }
      if (best < 0) return symbols
      symbols.splice(best, 2, symbols[best] + symbols[best + 1])
    }
  }

  decode(ids) {
    const bytes = []
    let text = ""
    const flush = () => {
      text += read(bytes)
      bytes.length = 0
    }
    for (const id of ids) {
      const [piece, , type] = this.pieces[id]
      if (type === "byte") {
        bytes.push(parseInt(piece.slice(3, 5), 16))
        continue
      }
      if (bytes.length) flush()
      text +=
        type === "unknown"
          ? " ⁇ "
          : type === "control"
            ? ""
            : !text && (this.begins || this.trims)
              ? piece.replace(/^▁/, "")
              : piece
    }
    if (bytes.length) flush()
    return text.replaceAll(SPACE, " ").replace(/^ +| +$/g, "")
  }

  piece(id) {
    return id === EOS ? "</s>" : this.pieces[id][0]
  }
}
