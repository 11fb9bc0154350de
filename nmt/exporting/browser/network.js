// Network in JavaScript: encoder, attention, decoders and output layer. The equations are in
// nmt/model/encoder, nmt/model/attention and nmt/model/decoder. Vectors are Float32Array. `rows` are
// the hypotheses of a search, which share the memory of one sentence.

class Network {
  constructor(settings, weights) {
    this.settings = settings
    this.weights = weights
  }

  get(name) {
    return this.weights[name]
  }

  // One time step of a recurrent layer for several rows. The input part of the gates is
  // a = W x + b. The state of a row is [h] for a GRU and [h, c] for an LSTM.

  cells(name, inputs, states, direction = "") {
    return this.updated(name, this.gates(name, inputs, direction), states, direction)
  }

  gates(name, inputs, direction) {
    return product(
      this.get(`${name}.rnn.weight_ih_l0${direction}`),
      inputs,
      this.get(`${name}.rnn.bias_ih_l0${direction}`),
    )
  }

  updated(name, a, states, direction) {
    const matrix = this.get(`${name}.rnn.weight_hh_l0${direction}`)
    const directionIndex = direction ? 1 : 0
    const size = matrix.columns
    const cell = this.settings.cell.endsWith("lstm") ? lstm : gru
    const norm = (part, x) => this.normedGates(`${name}.${part}`, x, size, directionIndex)
    const u = product(
      matrix,
      states.map(([h]) => h),
      this.get(`${name}.rnn.bias_hh_l0${direction}`),
    )
    let newStates = states.map((state, n) =>
      cell(norm("input_norm", a[n]), norm("state_norm", u[n]), state, (c) =>
        norm("carried_norm", c),
      ),
    )
    for (let i = 0; this.get(`${name}.transitions.${i}.weight`); i++) {
      // Deep transition: further cells without an input
      const transition = `${name}.transitions.${i}`
      const part = (what) => half(this.get(`${transition}.${what}`), directionIndex, matrix.rows)
      const more = product(
        part("weight"),
        newStates.map(([h]) => h),
        part("bias"),
      )
      newStates = newStates.map((state, n) =>
        cell(part("input_bias").data, norm(`transitions.${i}.norm`, more[n]), state, (c) =>
          norm("carried_norm", c),
        ),
      )
    }
    return newStates
  }

  // Layer normalisation of each gate (norm_gru, norm_lstm), if the model has weights of this name
  normedGates(name, x, size, directionIndex) {
    const gain = this.get(`${name}.gain`)
    if (!gain) return x
    const result = new Float32Array(x.length)
    const bias = this.get(`${name}.bias`)
    for (let gate = 0; gate < x.length; gate += size)
      result.set(
        standard(x.subarray(gate, gate + size)).map(
          (value, k) =>
            value * gain.data[directionIndex * x.length + gate + k] +
            bias.data[directionIndex * x.length + gate + k],
        ),
        gate,
      )
    return result
  }

  zeros(size) {
    return Array.from(
      { length: this.settings.cell.endsWith("lstm") ? 2 : 1 },
      () => new Float32Array(size),
    )
  }

  // Layer normalisation, if the model has weights of this name
  normed(name, x) {
    const gain = this.get(`${name}.weight`)
    if (!gain) return x
    return standard(x).map((value, k) => value * gain.data[k] + this.get(`${name}.bias`).data[k])
  }

  // Runs the encoder on the token ids of a sentence

  encode(ids) {
    const { encoder } = this.settings
    const source = [...ids, EOS]
    const table = this.get("source_embedding.weight")
    const embedded = source.map((id) => rowOf(table, id))
    let x = embedded
    let summary
    for (let i = 0; i < encoder.layers; i++) {
      const name = `encoder.layers.${i}`
      let outputs
      let last
      if (encoder.kind === "bidirectional") {
        const forward = this.reading(name, x)
        const backward = this.reading(name, [...x].reverse(), "_reverse").reverse()
        outputs = forward.map((h, s) => joined(h, backward[s]))
        last = joined(forward.at(-1), backward[0])
      } else {
        const isReversed = encoder.kind === "alternating" && i % 2 === 1
        outputs = this.reading(name, isReversed ? [...x].reverse() : x)
        last = outputs.at(-1)
        if (isReversed) outputs.reverse()
      }
      const y = outputs.map((h) => this.normed(`encoder.norms.${i}`, h))
      summary = this.normed(`encoder.norms.${i}`, last)
      x = encoder.residual && i ? x.map((below, s) => sum(below, y[s])) : y
    }
    return this.prepared({ source, embedded, values: x, summary })
  }

  // Returns the states of a layer after each input
  reading(name, inputs, direction = "") {
    let state = this.zeros(this.get(`${name}.rnn.weight_hh_l0${direction}`).columns)
    return this.gates(name, inputs, direction).map((a) => {
      ;[state] = this.updated(name, [a], [state], direction)
      return state[0]
    })
  }

  // Memory of a sentence, computed once: keys, and values for each head

  prepared(memory) {
    const { score, heads } = this.settings
    const name = "decoder.attention.score"
    if (score === "none") return { ...memory, keys: [], heads: [] }
    const layer = this.get(`${name}.key_layer.weight`)
    let keys = layer
      ? product(layer, memory.values, this.get(`${name}.key_layer.bias`))
      : memory.values
    let valuesByHead = [memory.values]
    if (score === "multi_head") {
      const headValues = product(this.get(`${name}.value_layer.weight`), memory.values)
      const out = this.get(`${name}.output_layer.weight`)
      const size = headValues[0].length / heads
      valuesByHead = Array.from({ length: heads }, (_, h) =>
        headValues.map((value) =>
          Float32Array.from({ length: out.rows }, (_, m) => {
            let total = 0
            for (let k = h * size; k < (h + 1) * size; k++) total += rowOf(out, m)[k] * value[k]
            return heads * total
          }),
        ),
      )
    }
    const fertility =
      score === "coverage" &&
      product(this.get(`${name}.fertility_layer.weight`), memory.values).map(
        ([x]) => this.settings.fertility * Math.max(sigmoid(x), 1e-6),
      )
    return { ...memory, keys, heads: valuesByHead, fertility }
  }

  // Attention of each row: weights [heads][positions] and the weighted sum of the values. If `only`
  // is given, only these source positions get attention.

  attend(hidden, memory, attended, only) {
    const { score, heads } = this.settings
    const positions = memory.keys.length
    const layer = this.get("decoder.attention.score.query_layer.weight")
    const queries = layer ? product(layer, hidden) : hidden
    const gate = this.get("decoder.attention.gate.weight")
    const gates = gate
      ? product(gate, hidden, this.get("decoder.attention.gate.bias")).map(([x]) => sigmoid(x))
      : null
    return queries.map((query, n) => {
      const scores = this.scores(score, query, memory, attended[n])
      const weights = scores.map((row) => {
        const visible = only ? row.map((value, s) => (only.includes(s) ? value : -Infinity)) : row
        return normalizers[this.settings.normalizer](visible).map((value) => value / heads)
      })
      const context = new Float32Array(memory.heads[0][0].length)
      weights.forEach((row, h) =>
        row.forEach((weight, s) => {
          const value = memory.heads[h][s]
          const share = weight * (gates ? gates[n] : 1)
          if (share) for (let k = 0; k < context.length; k++) context[k] += share * value[k]
        }),
      )
      const shown = Array.from({ length: positions }, (_, s) =>
        weights.reduce((total, row) => total + row[s], 0),
      )
      return { weights, shown, context }
    })
  }

  // Attention scores of all source positions for each head
  scores(score, query, memory, attended) {
    const name = "decoder.attention.score"
    const scale = this.get(`${name}.scale`)?.data[0] ?? 1
    const { keys } = memory
    if (score === "uniform") return [keys.map(() => 0)]
    if (score === "location") return [keys.map((_, s) => query[Math.min(s, query.length - 1)])]
    if (score === "multi_head") {
      const { heads } = this.settings
      const size = query.length / heads
      return Array.from({ length: heads }, (_, h) =>
        keys.map(
          (key) =>
            dot(query.subarray(h * size, (h + 1) * size), key.subarray(h * size, (h + 1) * size)) /
            Math.sqrt(size),
        ),
      )
    }
    if (score === "concat" || score === "normed_concat" || score === "coverage") {
      const v = this.get(`${name}.v`).data
      const coverage = this.get(`${name}.coverage`)?.data
      const factor = score === "normed_concat" ? scale / Math.sqrt(dot(v, v)) : 1
      return [
        keys.map((key, s) => {
          const covered = coverage ? attended[s] / memory.fertility[s] : 0
          let total = 0
          for (let k = 0; k < v.length; k++)
            total += v[k] * Math.tanh(query[k] + key[k] + (coverage ? covered * coverage[k] : 0))
          return factor * total
        }),
      ]
    }
    const factor = { scaled_dot: 1 / Math.sqrt(query.length), scaled_general: scale }[score] ?? 1
    return [keys.map((key) => factor * dot(query, key))]
  }

  // Decoder: the initial state, and a decoder step for several rows

  start(memory) {
    const { decoder, cell } = this.settings
    const parts = cell.endsWith("lstm") ? 2 : 1
    const weight = this.get("decoder.bridge.weight")
    const first =
      decoder.bridge === "mean"
        ? memory.values.reduce(sum).map((x) => x / memory.values.length)
        : memory.summary
    let initial = null
    if (weight) {
      initial = product(weight, [first], this.get("decoder.bridge.bias"))[0]
      if (decoder.bridge !== "linear") initial = initial.map(Math.tanh)
    }
    const state = (i, part) => {
      if (initial)
        return initial.slice(
          (i * parts + part) * decoder.hidden,
          (i * parts + part + 1) * decoder.hidden,
        )
      return decoder.bridge === "last" && part === 0 ? first : new Float32Array(decoder.hidden)
    }
    const cells = Array.from({ length: decoder.layers }, (_, i) =>
      Array.from({ length: parts }, (_, part) => state(i, part)),
    )
    return { cells, feed: new Float32Array(decoder.readout), attended: memory.source.map(() => 0) }
  }

  // Runs stacked layers, beginning with the layer number `from`
  upper(prefix, x, states, from, cells) {
    for (let i = from; i < this.settings.decoder.layers; i++) {
      const newStates = this.cells(
        `${prefix}${i - from}`,
        x,
        states.map((state) => state.cells[i]),
      )
      const y = newStates.map(([h]) => h)
      cells.push(newStates)
      x = this.settings.decoder.residual && i ? x.map((below, n) => sum(below, y[n])) : y
    }
    return x
  }

  step(words, states, memory, only) {
    const { kind } = this.settings.decoder
    const table = this.get("target_embedding.weight")
    const embedded = words.map((word) => rowOf(table, word))
    const attend = (hidden) =>
      this.attend(
        hidden,
        memory,
        states.map((state) => state.attended),
        only,
      )
    const bottom = states.map((state) => state.cells[0])
    const cells = [] // state of each layer and row
    let attention = null
    let readouts
    if (kind === "bahdanau") {
      attention = attend(bottom.map(([h]) => h))
      cells.push(
        this.cells(
          "decoder.bottom",
          embedded.map((e, n) => joined(e, attention[n].context)),
          bottom,
        ),
      )
    } else if (kind === "conditional") {
      const before = this.cells("decoder.before", embedded, bottom)
      attention = attend(before.map(([h]) => h))
      cells.push(
        this.cells(
          "decoder.after",
          attention.map((vector) => vector.context),
          before,
        ),
      )
    }
    if (attention) {
      const top = this.upper(
        "decoder.upper.layers.",
        cells[0].map(([h]) => h),
        states,
        1,
        cells,
      )
      const inputs = top.map((h, n) => joined(h, embedded[n], attention[n].context))
      readouts = kind === "bahdanau" ? this.maxout(inputs) : this.combined(inputs)
    } else if (kind === "fixed") {
      const inputs = embedded.map((e) => joined(e, memory.summary))
      const top = this.upper("decoder.layers.layers.", inputs, states, 0, cells)
      readouts = this.maxout(top.map((h, n) => joined(h, inputs[n])))
    } else {
      const feeds = kind === "luong_feed"
      const inputs = feeds ? embedded.map((e, n) => joined(e, states[n].feed)) : embedded
      const top = this.upper(
        feeds ? "decoder.layers." : "decoder.layers.layers.",
        inputs,
        states,
        0,
        cells,
      )
      attention = attend(top)
      readouts = this.combined(top.map((h, n) => joined(attention[n].context, h)))
    }
    const newStates = states.map((state, n) => ({
      cells: cells.map((layer) => layer[n]),
      feed: readouts[n],
      attended: attention
        ? state.attended.map((total, s) => total + attention[n].shown[s])
        : state.attended,
    }))
    const features = readouts.map((vector) => this.normed("decoder.norm", vector))
    return {
      logProbs: this.logProbs(features, attention, memory),
      seen: attention,
      states: newStates,
    }
  }

  maxout(inputs) {
    return product(
      this.get("decoder.readout.layer.weight"),
      inputs,
      this.get("decoder.readout.layer.bias"),
    ).map((pairs) => {
      const size = pairs.length / 2
      return Float32Array.from({ length: size }, (_, k) => Math.max(pairs[k], pairs[size + k]))
    })
  }

  combined(inputs) {
    return product(
      this.get("decoder.combine.weight"),
      inputs,
      this.get("decoder.combine.bias"),
    ).map((vector) => vector.map(Math.tanh))
  }

  logProbs(readouts, attention, memory) {
    const logits = product(this.get("output.weight"), readouts, this.get("output.bias"))
    const lexical = this.get("lexical.output.weight")
    if (lexical) {
      const attended = attention.map(({ shown }) => {
        const total = new Float32Array(memory.embedded[0].length)
        shown.forEach((weight, s) =>
          memory.embedded[s].forEach((x, k) => {
            total[k] += weight * x
          }),
        )
        return total.map(Math.tanh)
      })
      const hidden = product(this.get("lexical.hidden.weight"), attended).map((h, n) =>
        sum(h.map(Math.tanh), attended[n]),
      )
      product(lexical, hidden).forEach((more, n) =>
        more.forEach((x, v) => {
          logits[n][v] += x
        }),
      )
      readouts = readouts.map((vector, n) => joined(vector, hidden[n]))
    }
    const { lexicon } = this.settings
    const translated = lexicon ? attention.map(({ shown }) => this.translated(shown, memory)) : null
    if (lexicon?.use === "bias") {
      translated.forEach((p, n) =>
        p.forEach((x, v) => {
          logits[n][v] += Math.log1p(x / lexicon.epsilon)
        }),
      )
    }
    const gate = this.get("copying.gate.weight")
    const generated = gate ? product(gate, readouts, this.get("copying.gate.bias")) : null
    return logits.map((row, n) => {
      let greatest = -Infinity
      let total = 0
      for (const x of row) if (x > greatest) greatest = x
      for (const x of row) total += Math.exp(x - greatest)
      const normalizer = greatest + Math.log(total)
      let result = row.map((x) => x - normalizer)
      if (gate) {
        // Mixture of generation (gate g) and the lexicon, or the attention weights of the source
        // tokens (copying)
        const g = Math.min(Math.max(sigmoid(generated[n][0]), 1e-6), 1 - 1e-6)
        const p = result.map((x) => g * Math.exp(x))
        if (lexicon?.use === "mixture") {
          translated[n].forEach((x, v) => {
            p[v] += (1 - g) * x
          })
        } else {
          memory.source.forEach((id, s) => {
            p[id] += (1 - g) * attention[n].shown[s]
          })
        }
        result = p.map((x) => Math.log(Math.max(x, 1e-38)))
      }
      result[PAD] = result[BOS] = -Infinity
      return result
    })
  }

  // Lexicon probability of each target token: sum over the source tokens x_s of α_s p_lex(y | x_s)
  translated(weights, memory) {
    const tokens = this.get("lexicon.tokens").data
    const probabilities = this.get("lexicon.probabilities").data
    const { entries } = this.settings.lexicon // number of entries of each source token
    const p = new Map()
    memory.source.forEach((id, s) => {
      for (let i = id * entries; i < (id + 1) * entries; i++)
        p.set(tokens[i], (p.get(tokens[i]) ?? 0) + weights[s] * probabilities[i])
    })
    return p
  }
}

// GRU with reset gate, update gate z and candidate state n: h' = n + z (h − n)
function gru(a, u, [h]) {
  const size = h.length
  return [
    h.map((before, k) => {
      const r = sigmoid(a[k] + u[k])
      const z = sigmoid(a[size + k] + u[size + k])
      const n = Math.tanh(a[2 * size + k] + r * u[2 * size + k])
      return n + z * (before - n)
    }),
  ]
}

// LSTM with input gate, forget gate, candidate state and output gate, in this order
function lstm(a, u, [h, c], norm) {
  const size = h.length
  const cell = c.map(
    (before, k) =>
      sigmoid(a[size + k] + u[size + k]) * before +
      sigmoid(a[k] + u[k]) * Math.tanh(a[2 * size + k] + u[2 * size + k]),
  )
  return [norm(cell).map((x, k) => sigmoid(a[3 * size + k] + u[3 * size + k]) * Math.tanh(x)), cell]
}

// Normalises a vector to mean 0 and variance 1
function standard(x) {
  const mean = x.reduce((total, value) => total + value, 0) / x.length
  const spread = Math.sqrt(
    x.reduce((total, value) => total + (value - mean) ** 2, 0) / x.length + 1e-5,
  )
  return x.map((value) => (value - mean) / spread)
}

const normalizers = {
  softmax(scores) {
    const greatest = Math.max(...scores)
    const p = scores.map((x) => Math.exp(x - greatest))
    const total = p.reduce((a, b) => a + b)
    return p.map((x) => x / total)
  },
  // Sparsemax (Martins & Astudillo 2016)
  sparsemax(scores) {
    const z = scores.map((x) => x - Math.max(...scores))
    const ranked = [...z].sort((a, b) => b - a)
    let total = 0
    let tau = 0
    ranked.forEach((x, k) => {
      if (Number.isFinite(x) && 1 + (k + 1) * x > total + x) tau = (total + x - 1) / (k + 1)
      total += x
    })
    return z.map((x) => Math.max(x - tau, 0))
  },
  // 1.5-entmax (Peters et al. 2019)
  entmax15(scores) {
    const x = scores.map((value) => (value - Math.max(...scores)) / 2)
    const ranked = [...x].sort((a, b) => b - a)
    let total = 0
    let squares = 0
    let tau = -1
    ranked.forEach((value, i) => {
      if (!Number.isFinite(value)) return
      total += value
      squares += value * value
      const k = i + 1
      const mean = total / k
      const least = mean - Math.sqrt(Math.max((1 - k * (squares / k - mean * mean)) / k, 0))
      if (least <= value) tau = least
    })
    return x.map((value) => Math.max(value - tau, 0) ** 2)
  },
}
