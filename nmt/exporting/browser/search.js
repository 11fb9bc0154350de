// Beam search (width 1: greedy), which records every word that it expands: nmt/search/breadth_first.py, nmt/inference/explanations/search_tree.py.

const TOP = 12 // words noted that might stand at a place

class Beam {
  constructor(network, { width, penalty, alpha }) {
    Object.assign(this, { network, width, penalty, alpha })
  }

  score(logProb, words) {
    return { none: logProb, average: logProb / words, power: logProb / words ** this.alpha,
      wu: logProb / ((5 + words) / 6) ** this.alpha, reward: logProb + this.alpha * words }[this.penalty]
  }

  // The `best` translations of a memory: those beginning with the words `prefix`, of at most `limit` words; at the steps in
  // `looks` (Map: step → position), one position alone is seen

  search(memory, { limit, best = 1, prefix = [], looks = new Map() }) {
    const finished = [], nodes = []
    let live = [{ total: 0, words: [], word: BOS, state: this.network.start(memory), parent: -1, own: 0 }]
    for (let length = 0; length <= limit && live.length; length++) {
      const { logProbs, seen, states } = this.network.step(live.map((one) => one.word), live.map((one) => one.state), memory, looks.get(length))
      const candidates = []
      live.forEach((one, n) => {
        nodes.push({ parent: one.parent, token: one.word, logProb: one.own, total: one.total, fate: "left", after: logProbs[n], seen: seen?.[n] })
        const node = nodes.length - 1
        const allowed = length < prefix.length ? [prefix[length]] : length === limit ? [EOS] : this.most(logProbs[n], this.width)
        for (const word of allowed)
          if (logProbs[n][word] > -Infinity)
            candidates.push({ total: one.total + logProbs[n][word], own: logProbs[n][word], words: [...one.words, word], word, state: states[n], parent: node })
      })
      candidates.sort((a, b) => b.total - a.total)
      const kept = candidates.slice(0, this.width)
      for (const one of kept)
        if (one.word === EOS)
          finished.push({ tokens: one.words.slice(0, -1), logProb: one.total, score: this.score(one.total, length + 1), node: one.parent })
      live = kept.filter((one) => one.word !== EOS)
      if (finished.length >= best && live.length) {
        const worst = finished.map((one) => one.score).sort((a, b) => b - a)[best - 1]
        const bound = Math.max(this.score(live[0].total, length + 2), this.score(live[0].total, Math.max(length + 2, limit + 1)))
        if (bound <= worst) break
      }
    }
    finished.sort((a, b) => b.score - a.score)
    return { found: finished.slice(0, best), nodes }
  }

  most(logProbs, count) { // the numbers of the largest, the largest first
    const best = []
    for (let word = 0; word < logProbs.length; word++) {
      if (best.length === count && logProbs[word] <= logProbs[best[count - 1]]) continue
      let at = best.length
      while (at && logProbs[word] > logProbs[best[at - 1]]) at--
      best.splice(at, 0, word)
      if (best.length > count) best.pop()
    }
    return best
  }
}
