// One attention step over the source positions of each sentence, padding excluded: scores, softmax, weighted sum.
//
//     additive    e_s = Σ_k v_k tanh(q_k + k_sk / 2)      with keys k_s = 2 (U h_s + b), as in attention/concat.py
//                 tanh(q + k / 2) = 1 − 2 / (1 + e²ᑫ eᵏ)  from the powers eᵏ, which the caller computes once per sentence
//     product     e_s = Σ_k q_k k_sk
//     α = softmax(e)        c = Σ_s α_s h_s             with memory values h_s
//
// Backward pass from γ = ∂L/∂c and ω = ∂L/∂α. It recomputes the tanh, so that no array of size S·K is stored:
//
//     ∂α_s = ω_s + γ · h_s        δ_s = ∂e_s = α_s (∂α_s − Σ_j α_j ∂α_j)
//     additive    ∂q_k = Σ_s δ_s v_k (1 − tanh²)      ∂k_sk = half of the term of s      ∂v_k = Σ_s δ_s tanh
//     product     ∂q_k = Σ_s δ_s k_sk                 ∂k_sk = δ_s q_k
//
// The gradient of h is the outer product α γᵀ, which the caller sums over all steps at once.
//
// Each sentence has `rows` consecutive queries. Sentences are computed in parallel.

#include <type_traits>
#include <vector>

#include "vector.h"

namespace {

// Smaller weights get no gradient, because products with them would be denormal numbers, which are slow.
constexpr float TINY = 1e-20f;

// Keys of additive scores are powers eᵏ in float32.
template <bool additive, typename K>
using Key = std::conditional_t<additive, float, K>;

// A query as the scores read it.
template <bool additive>
inline float prepared(float q) {
    return additive ? power_of_query(q) : q;
}

template <bool additive, typename Q, typename K>
void forward(Index sentences, Index rows, Index length, Index size, Index features, Index stride,
             const Q* query, const Key<additive, K>* keys, const K* values, const float* v, const bool* mask, float* weights,
             K* context) {
#pragma omp parallel for schedule(static)
    for (Index b = 0; b < sentences; b++) {
        std::vector<float> q(size), sum(features);
        for (Index row = b * rows; row < (b + 1) * rows; row++) {
            float* alpha = weights + row * length;
#pragma omp simd
            for (Index k = 0; k < size; k++) q[k] = prepared<additive>(load(query[row * stride + k]));
            float largest = -INFINITY;
            for (Index s = 0; s < length; s++) {
                if (!mask[b * length + s]) continue;
                const Key<additive, K>* key = keys + (b * length + s) * size;
                float score = 0;
                if constexpr (additive) {
#pragma omp simd reduction(+ : score)
                    for (Index k = 0; k < size; k++) score += v[k] * tanh_of_powers(q[k], load(key[k]));
                } else {
#pragma omp simd reduction(+ : score)
                    for (Index k = 0; k < size; k++) score += q[k] * load(key[k]);
                }
                alpha[s] = score;
                if (!(score <= largest)) largest = score;  // also propagates NaN
            }
            float total = 0;
            for (Index s = 0; s < length; s++) {
                alpha[s] = mask[b * length + s] ? exponential(alpha[s] - largest) : 0.0f;
                total += alpha[s];
            }
            for (Index d = 0; d < features; d++) sum[d] = 0;
            for (Index s = 0; s < length; s++) {
                alpha[s] /= total;
                if (alpha[s] == 0) continue;
                const K* value = values + (b * length + s) * features;
                float weight = alpha[s];
#pragma omp simd
                for (Index d = 0; d < features; d++) sum[d] += weight * load(value[d]);
            }
            K* result = context + row * features;
#pragma omp simd
            for (Index d = 0; d < features; d++) store(result[d], sum[d]);
        }
    }
}

template <bool additive, typename Q, typename K>
void backward(Index sentences, Index rows, Index length, Index size, Index features, Index stride,
              const Q* query, const Key<additive, K>* keys, const K* values, const float* v, const float* weights,
              const float* d_weights, const K* d_context, Q* d_query, float* d_keys, float* d_v) {
#pragma omp parallel for schedule(static)
    for (Index b = 0; b < sentences; b++) {
        std::vector<float> q(size), dq(size), d_score(length);
        float* dv = d_v + b * size;
        for (Index row = b * rows; row < (b + 1) * rows; row++) {
            const float* alpha = weights + row * length;
            const K* gamma = d_context + row * features;
            float mean = 0;
            for (Index s = 0; s < length; s++) {
                float d_alpha = d_weights[row * length + s];
                if (alpha[s] < TINY) continue;
                const K* value = values + (b * length + s) * features;
#pragma omp simd reduction(+ : d_alpha)
                for (Index d = 0; d < features; d++) d_alpha += load(gamma[d]) * load(value[d]);
                d_score[s] = d_alpha;
                mean += alpha[s] * d_alpha;
            }
#pragma omp simd
            for (Index k = 0; k < size; k++) {
                q[k] = prepared<additive>(load(query[row * stride + k]));
                dq[k] = 0;
            }
            for (Index s = 0; s < length; s++) {
                if (alpha[s] < TINY) continue;
                float delta = alpha[s] * (d_score[s] - mean);
                const Key<additive, K>* key = keys + (b * length + s) * size;
                float* d_key = d_keys + (b * length + s) * size;
                if constexpr (additive) {
#pragma omp simd
                    for (Index k = 0; k < size; k++) {
                        float hidden = tanh_of_powers(q[k], load(key[k]));
                        float d = delta * v[k] * (1.0f - hidden * hidden);
                        dq[k] += d;
                        d_key[k] += 0.5f * d;
                        dv[k] += delta * hidden;
                    }
                } else {
#pragma omp simd
                    for (Index k = 0; k < size; k++) {
                        dq[k] += delta * load(key[k]);
                        d_key[k] += delta * q[k];
                    }
                }
            }
            for (Index k = 0; k < size; k++) store(d_query[row * size + k], dq[k]);
        }
    }
}

}  // namespace

#define VARIANT(NAME, ADDITIVE, Q, K)                                                                                 \
    extern "C" void attend_##NAME(Index sentences, Index rows, Index length, Index size, Index features,              \
                                  Index stride, const Q* query, const Key<ADDITIVE, K>* keys, const K* values,        \
                                  const float* v, const bool* mask, float* weights, K* context) {                     \
        forward<ADDITIVE>(sentences, rows, length, size, features, stride, query, keys, values, v, mask, weights,     \
                          context);                                                                                   \
    }                                                                                                                 \
    extern "C" void attend_backward_##NAME(Index sentences, Index rows, Index length, Index size, Index features,     \
                                           Index stride, const Q* query, const Key<ADDITIVE, K>* keys,                \
                                           const K* values, const float* v, const float* weights,                     \
                                           const float* d_weights, const K* d_context, Q* d_query, float* d_keys,     \
                                           float* d_v) {                                                              \
        backward<ADDITIVE>(sentences, rows, length, size, features, stride, query, keys, values, v, weights,          \
                           d_weights, d_context, d_query, d_keys, d_v);                                               \
    }

VARIANT(additive_float32, true, float, float)
VARIANT(additive_bfloat16, true, BFloat16, BFloat16)
VARIANT(additive_mixed, true, float, BFloat16)
VARIANT(product_float32, false, float, float)
VARIANT(product_bfloat16, false, BFloat16, BFloat16)
VARIANT(product_mixed, false, float, BFloat16)
