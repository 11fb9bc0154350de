// Operations of a search step except the matrix multiplications. Each function makes one pass over data in the
// processor's cache, and names its PyTorch equivalent, which is used without this library.
//
// Dimensions: N rows of a search, B sentences, S source positions, K features of a key, M features of a value,
// V vocabulary size. Tensors are contiguous.

#include <algorithm>
#include <functional>
#include <vector>

#include "vector.h"

namespace {

constexpr float INFINITE = __builtin_inff();
constexpr Index BLOCK = 64;

float maximum(const float* x, Index size) {
    float largest = -INFINITE;
    if (size == BLOCK) {
#pragma omp simd reduction(max : largest)
        for (Index j = 0; j < BLOCK; j++) largest = std::max(largest, x[j]);
    } else {
        for (Index j = 0; j < size; j++) largest = std::max(largest, x[j]);
    }
    return largest;
}

// Weighted sums of the values [S M] of one sentence for R rows; a position where all weights are 0 is skipped.
template <int R>
void add_values(Index positions, Index size, const float* weights, const float* values, float* sums, Index stride) {
    for (Index begin = 0; begin < size; begin += BLOCK) {
        const Index width = std::min(BLOCK, size - begin);
        float sum[R][BLOCK] = {};
        for (Index s = 0; s < positions; s++) {
            const float* value = values + s * size + begin;
            bool is_unused = true;
            for (int i = 0; i < R; i++) is_unused = is_unused && weights[i * positions + s] == 0;
            if (is_unused) continue;
            if (width == BLOCK) {
#pragma GCC unroll 6
                for (int i = 0; i < R; i++)
#pragma omp simd
                    for (Index j = 0; j < BLOCK; j++) sum[i][j] += weights[i * positions + s] * value[j];
            } else {
                for (int i = 0; i < R; i++)
                    for (Index j = 0; j < width; j++) sum[i][j] += weights[i * positions + s] * value[j];
            }
        }
        for (int i = 0; i < R; i++) std::copy(sum[i], sum[i] + width, sums + i * stride + begin);
    }
}

}  // namespace

// Attention weights [N S], 0 at padding: softmax of qᵀk or, with v [K], of vᵀ tanh(q + k/2). Equivalent of `Score.forward`,
// `Concat.forward` and `Attention._attend` in model/attention. q [N K], real [B S], sentences [N]; keys [B S K], or with
// `are_powers` the powers eᵏ, as in attention.cpp.
extern "C" void search_attention(Index rows, Index positions, Index size, const float* queries, Index q_stride,
                          const float* keys, const bool* real, const Index* sentences, const float* v, bool are_powers,
                          float* weights) {
    std::vector<float> powers(are_powers ? size : 0);
    for (Index i = 0; i < rows; i++) {
        const float *q = queries + i * q_stride, *k = keys + sentences[i] * positions * size;
        const bool* is_real = real + sentences[i] * positions;
        float *row = weights + i * positions, largest = -INFINITE, sum = 0;
        if (are_powers) {
#pragma omp simd
            for (Index j = 0; j < size; j++) powers[j] = power_of_query(q[j]);
        }
        for (Index s = 0; s < positions; s++, k += size) {
            float score = 0;
            if (!is_real[s]) continue;
            if (are_powers) {
#pragma omp simd reduction(+ : score)
                for (Index j = 0; j < size; j++) score += v[j] * tanh_of_powers(powers[j], k[j]);
            } else if (v) {
#pragma omp simd reduction(+ : score)
                for (Index j = 0; j < size; j++) score += v[j] * tanh_of_half(2.0f * q[j] + k[j]);
            } else {
#pragma omp simd reduction(+ : score)
                for (Index j = 0; j < size; j++) score += q[j] * k[j];
            }
            row[s] = score;
            largest = std::max(largest, score);
        }
        for (Index s = 0; s < positions; s++) row[s] = is_real[s] ? exponential(row[s] - largest) : 0;
        for (Index s = 0; s < positions; s++) sum += row[s];
        for (Index s = 0; s < positions; s++) row[s] /= sum;
    }
}

// Weighted sums [N M] of the values. Equivalent of `sums` in model/attention/layer.py. weights [N S], values [B S M], sentences [N];
// rows of the sums are `stride` elements apart.
extern "C" void search_weighted_sum(Index rows, Index positions, Index size, const float* weights, const float* values,
                                    const Index* sentences, float* sums, Index stride) {
    constexpr decltype(&add_values<1>) FUNCTIONS[] = {add_values<1>, add_values<2>, add_values<3>,
                                                      add_values<4>, add_values<5>, add_values<6>};
    for (Index i = 0, some; i < rows; i += some) {
        for (some = 1; some < 6 && i + some < rows && sentences[i + some] == sentences[i];) some++;
        FUNCTIONS[some - 1](positions, size, weights + i * positions, values + sentences[i] * positions * size,
                            sums + i * stride, stride);
    }
}

// Rows quantized to 8 bits [N K], and the largest absolute value of each row [N]. Equivalent of `_int8` in layers/packed.py.
extern "C" void search_quantize(Index rows, Index size, const float* x_rows, unsigned char* low_rows,
                         float* scales) {
    for (Index i = 0; i < rows; i++) {
        const float* x = x_rows + i * size;
        unsigned char* low = low_rows + i * size;
        float largest = 1e-12f;
#pragma omp simd reduction(max : largest)
        for (Index j = 0; j < size; j++) largest = std::max(largest, __builtin_fabsf(x[j]));
        scales[i] = largest;
        float factor = 127 / largest;
#pragma omp simd
        for (Index j = 0; j < size; j++) low[j] = static_cast<unsigned char>(static_cast<int>(128.5f + x[j] * factor));
    }
}

// Replaces y by y scale + bias: y [N M], scales [N], bias [M].
extern "C" void search_rescale(Index rows, Index size, float* y_rows, const float* scales, const float* bias) {
    for (Index i = 0; i < rows; i++) {
        float* y = y_rows + i * size;
#pragma omp simd
        for (Index j = 0; j < size; j++) y[j] = bias[j] + y[j] * scales[i];
    }
}

// y = tanh x for `numbers` elements. Equivalent of `tanh` in layers/numeric.py.
extern "C" void search_tanh(Index numbers, const float* x, float* y) {
#pragma omp simd
    for (Index j = 0; j < numbers; j++) y[j] = tanh_of_half(2.0f * x[j]);
}

// The largest log-probabilities of each row with their tokens [N k], best first, and that of the token `end` [N].
// Equivalent of torch.log_softmax and search/shortcuts.py. logits [N V]; ids below `end` are excluded, except 1 (unknown).
// One pass finds the maximum of each block, one computes the sum; only blocks that can contain one of the best are searched.
extern "C" void search_best(Index rows, Index words, Index k, Index end, const float* logits, float* values,
                            Index* tokens, float* ends) {
    const Index blocks = (words + BLOCK - 1) / BLOCK, spare = std::min(blocks - 1, k);
    std::vector<float> maxima(blocks), ranked;
    for (Index i = 0; i < rows; i++, values += k, tokens += k) {
        const float* x = logits + i * words;
        float largest = -INFINITE, sum = 0;
        for (Index b = 0; b < blocks; b++) {
            maxima[b] = maximum(x + b * BLOCK, std::min(BLOCK, words - b * BLOCK));
            largest = std::max(largest, maxima[b]);
        }
#pragma omp simd reduction(+ : sum)
        for (Index j = 0; j < words; j++) sum += exponential(x[j] - largest);
        const float normalizer = largest + __builtin_logf(sum);
        ranked = maxima;  // the maximum of the first block may be an excluded token, so one more block is searched
        std::nth_element(ranked.begin(), ranked.begin() + spare, ranked.end(), std::greater<float>());
        std::fill(values, values + k, -INFINITE);
        std::fill(tokens, tokens + k, end);
        for (Index b = 0; b < blocks; b++) {
            if (maxima[b] < ranked[spare]) continue;
            for (Index j = b * BLOCK; j < std::min(words, (b + 1) * BLOCK); j++) {
                if (x[j] <= values[k - 1] || (j < end && j != 1)) continue;
                Index place = k - 1;
                for (; place > 0 && x[j] > values[place - 1]; place--) {
                    values[place] = values[place - 1];
                    tokens[place] = tokens[place - 1];
                }
                values[place] = x[j];
                tokens[place] = j;
            }
        }
        for (Index j = 0; j < k; j++) values[j] -= normalizer;
        ends[i] = x[end] - normalizer;
    }
}
