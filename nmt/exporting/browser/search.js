// Beam search (greedy with width 1) that records every token that it extends, as
// nmt/search/breadth_first.py and nmt/inference/explanations/explanation.py do.

const TOP = 12 // number of alternatives shown for a token

class Beam {
  constructor(network, { width, penalty, alpha, noRepeat }) {
    Object.assign(this, { network, width, penalty, alpha, noRepeat })
  }

  score(logProb, words) {
    return {
      none: logProb,
      average: logProb / words,
      power: logProb / words ** this.alpha,
      wu: logProb / ((5 + words) / 6) ** this.alpha,
      reward: logProb + this.alpha * words,
    }[this.penalty]
  }

  // Returns the `best` translations with at most `limit` tokens that begin with the tokens
  // `prefix`. `attendTo` (pairs [decoder step, source position]): at a step with pairs, only their
  // positions get attention.

  search(memory, { limit, best = 1, prefix = [], attendTo = [] }) {
    const finished = []
    const nodes = []
    let live = [
      { total: 0, words: [], word: BOS, state: this.network.start(memory), parent: -1, own: 0 },
    ]
    for (let length = 0; length <= limit && live.length; length++) {
      const pairs = attendTo.filter(([step]) => step === length)
      const { logProbs, seen, states } = this.network.step(
        live.map((hypothesis) => hypothesis.word),
        live.map((hypothesis) => hypothesis.state),
        memory,
        pairs.length ? pairs.map(([, position]) => position) : null,
      )
      const candidates = []
      live.forEach((hypothesis, n) => {
        nodes.push({
          parent: hypothesis.parent,
          token: hypothesis.word,
          logProb: hypothesis.own,
          total: hypothesis.total,
          fate: "left",
          after: logProbs[n],
          seen: seen?.[n],
        })
        const node = nodes.length - 1
        const allowed =
          length < prefix.length
            ? [prefix[length]]
            : length === limit
              ? [EOS]
              : this.most(logProbs[n], this.width, this.repeating(hypothesis.words))
        for (const word of allowed)
          if (logProbs[n][word] > -Infinity)
            candidates.push({
              total: hypothesis.total + logProbs[n][word],
              own: logProbs[n][word],
              words: [...hypothesis.words, word],
              word,
              state: states[n],
              parent: node,
            })
      })
      candidates.sort((a, b) => b.total - a.total)
      const survivors = candidates.slice(0, this.width)
      for (const hypothesis of survivors)
        if (hypothesis.word === EOS)
          finished.push({
            tokens: hypothesis.words.slice(0, -1),
            logProb: hypothesis.total,
            score: this.score(hypothesis.total, length + 1),
            node: hypothesis.parent,
          })
      live = survivors.filter((hypothesis) => hypothesis.word !== EOS)
      if (finished.length >= best && live.length) {
        const worst = finished.map((hypothesis) => hypothesis.score).sort((a, b) => b - a)[best - 1]
        const bound = Math.max(
          this.score(live[0].total, length + 2),
          this.score(live[0].total, Math.max(length + 2, limit + 1)),
        )
        if (bound <= worst) break
      }
    }
    finished.sort((a, b) => b.score - a.score)
    return { hypotheses: finished.slice(0, best), nodes }
  }

  // Tokens that would repeat a sequence of `noRepeat` tokens; none with noRepeat 0
  repeating(words) {
    const size = this.noRepeat
    const begun = words.length - size + 1 // position of the last `size` - 1 tokens
    const tokens = new Set()
    for (let i = 0; size && i < begun; i++)
      if (words.slice(begun).every((word, j) => word === words[i + j])) tokens.add(words[i + size - 1])
    return tokens
  }

  // Ids of the `count` most probable tokens that are not excluded, most probable first
  most(logProbs, count, excluded = new Set()) {
    const best = []
    for (let word = 0; word < logProbs.length; word++) {
      if (excluded.has(word)) continue
      if (best.length === count && logProbs[word] <= logProbs[best[count - 1]]) continue
      let at = best.length
      while (at && logProbs[word] > logProbs[best[at - 1]]) at--
      best.splice(at, 0, word)
      if (best.length > count) best.pop()
    }
    return best
  }
}
