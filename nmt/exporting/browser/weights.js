// Weights of the model and matrix multiplication. The weights are int8 values with a scale for each
// row, converted once to float32. Multiplication by WebAssembly SIMD is several times as fast as
// JavaScript.

let memory // memory of WebAssembly: the weights, and buffers for the vectors of a multiplication

// Returns the tensors { data, rows, columns, stride, at } by name; a vector is a matrix with one row
function unpacked(listed, base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))
  // Row length in memory, in float32 values: a multiple of four, the width of a SIMD register
  const strideOf = (columns) => 4 * Math.ceil(columns / 4)
  const separate = listed.filter(({ same }) => !same)
  const size = separate.reduce((total, { rows, columns }) => total + rows * strideOf(columns), 0)
  const widest = Math.max(...separate.map(({ rows, columns }) => rows + strideOf(columns)))
  memory = new WebAssembly.Memory({ initial: Math.ceil((4 * (size + 5 * widest)) / 65536) + 1 })
  const tensors = {}
  let at = 0
  for (const { name, same, rows, columns, scales, offset } of listed) {
    if (same) {
      tensors[name] = tensors[same]
      continue
    }
    const stride = strideOf(columns)
    const data = new Float32Array(memory.buffer, at, rows * stride)
    if (scales === undefined) {
      data.set(new Float32Array(bytes.buffer, offset, columns))
    } else {
      const scale = new Float32Array(bytes.buffer, scales, rows)
      const integers = new Int8Array(bytes.buffer, offset, rows * columns)
      for (let row = 0, i = 0; row < rows; row++)
        for (let column = 0; column < columns; column++, i++)
          data[row * stride + column] = scale[row] * integers[i]
    }
    tensors[name] = {
      data: rows === 1 ? data.subarray(0, columns) : data,
      rows,
      columns,
      stride,
      at,
    }
    at += data.byteLength
  }
  tensors.room = at
  return tensors
}

const rowOf = ({ data, columns, stride }, row) =>
  data.subarray(row * stride, row * stride + columns)

// Returns the weights of one direction (0 or 1) of a bidirectional layer, with `rows` rows
function half(matrix, direction, rows) {
  const rowSize = matrix.rows === 1 ? 1 : matrix.stride
  const begin = direction * rows * rowSize
  return {
    ...matrix,
    data: matrix.data.subarray(begin, begin + rows * rowSize),
    rows: matrix.rows === 1 ? 1 : rows,
    at: matrix.at + 4 * begin,
  }
}

// Returns W x + b for each vector x; five vectors are multiplied at a time
function product({ rows, columns, stride, at }, vectors, bias = null) {
  const results = vectors.map(() => new Float32Array(rows))
  const room = weights.room
  for (let n = 0; n < vectors.length; n += 5) {
    const block = vectors.slice(n, n + 5)
    const count = block.length === 1 ? 1 : 5
    const x = new Float32Array(memory.buffer, room, count * stride)
    const y = new Float32Array(memory.buffer, room + x.byteLength, count * rows)
    x.fill(0)
    block.forEach((vector, i) => {
      // Interleave the vectors: four values of each vector, then the next four
      for (let k = 0; k < columns; k++) x[(k >> 2) * 4 * count + 4 * i + (k & 3)] = vector[k]
    })
    kernels[`times${count}`](at, x.byteOffset, y.byteOffset, rows, 4 * stride)
    block.forEach((_, i) => {
      for (let row = 0; row < rows; row++)
        results[n + i][row] = y[count * row + i] + (bias ? bias.data[row] : 0)
    })
  }
  return results
}

// Returns the bytes of a WebAssembly module. Its function timesN(w, x, y, rows, bytesPerRow)
// multiplies a matrix w by N interleaved vectors x.

function assembled(counts) {
  const number = (value) => {
    // Encodes an integer as unsigned LEB128.
    const bytes = []
    do {
      bytes.push((value & 127) | (value > 127 ? 128 : 0))
      value >>= 7
    } while (value)
    return bytes
  }
  const listed = (items) => [...number(items.length), ...items.flat()]
  const sized = (bytes) => [...number(bytes.length), ...bytes]
  const text = (letters) => sized([...new TextEncoder().encode(letters)])
  const section = (id, bytes) => [id, ...sized(bytes)]
  const i32 = 0x7f
  const v128 = 0x7b
  const w = 0
  const x = 1
  const y = 2
  const rows = 3
  const width = 4
  const at = 5
  const end = 6
  const weight = 7
  const total = 8
  const get = (local) => [0x20, local]
  const set = (local) => [0x21, local]
  const tee = (local) => [0x22, local]
  const constant = (value) => [0x41, (value & 127) | 128, value >> 7]
  const add = 0x6a
  const less = 0x49
  const again = [0x0d, 0]
  const loop = (...body) => [0x03, 0x40, ...body.flat(), 0x0b]
  const forward = (local, bytes) => [...get(local), ...constant(bytes), add]
  const load = (offset) => [0xfd, 0x00, 4, ...number(offset)]
  const zero = [0xfd, 0x0c, ...Array(16).fill(0)]
  const times = [0xfd, 0xe6, 0x01]
  const plus = [0xfd, 0xe4, 0x01]
  const lane = (i) => [0xfd, 0x1f, i]
  const sum = 0x92
  const body = (count) => {
    const vectors = Array.from({ length: count }, (_, i) => i)
    return sized([
      ...listed([
        [2, i32],
        [count + 1, v128],
      ]),
      ...loop(
        // Loop over the rows
        ...vectors.map((i) => [...zero, ...set(total + i)]),
        get(x),
        set(at),
        get(w),
        get(width),
        [add],
        set(end),
        loop(
          // Loop over the columns, four at a time
          get(w),
          load(0),
          set(weight),
          ...vectors.map((i) => [
            ...get(total + i),
            ...get(weight),
            ...get(at),
            ...load(16 * i),
            ...times,
            ...plus,
            ...set(total + i),
          ]),
          forward(at, 16 * count),
          set(at),
          forward(w, 16),
          tee(w),
          get(end),
          [less],
          again,
        ),
        ...vectors.map((i) => [
          ...get(y),
          ...get(total + i),
          ...lane(0),
          ...get(total + i),
          ...lane(1),
          sum,
          ...get(total + i),
          ...lane(2),
          sum,
          ...get(total + i),
          ...lane(3),
          sum,
          0x38,
          2,
          ...number(4 * i), // f32.store
        ]),
        forward(y, 4 * count),
        set(y),
        get(rows),
        constant(1),
        [0x6b],
        tee(rows),
        again,
      ),
      0x0b,
    ])
  }
  const header = [0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0] // "\0asm", version 1
  return Uint8Array.from([
    ...header,
    // Type of the functions: five integer arguments, no result
    ...section(1, listed([[0x60, ...listed(Array(5).fill([i32])), 0]])),
    ...section(2, listed([[...text("js"), ...text("memory"), 2, 0, 1]])),
    ...section(3, listed(counts.map(() => [0]))),
    ...section(7, listed(counts.map((count, i) => [...text(`times${count}`), 0, i]))),
    ...section(10, listed(counts.map(body))),
  ])
}

function dot(a, b) {
  let sum = 0
  for (let k = 0; k < a.length; k++) sum += a[k] * b[k]
  return sum
}

// Concatenates vectors
function joined(...vectors) {
  const result = new Float32Array(vectors.reduce((sum, vector) => sum + vector.length, 0))
  let at = 0
  for (const vector of vectors) {
    result.set(vector, at)
    at += vector.length
  }
  return result
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x))
const sum = (a, b) => a.map((x, k) => x + b[k])
