// Cross-entropy with label smoothing ε, and its gradient, for rows of logits l, see layers/fused_cross_entropy.py:
//
//     loss = −(1−ε) log p_y − ε/V Σ_v log p_v          ∂loss/∂l = p − (1−ε) 1_y − ε/V
//
// With an agreement factor λ, each pair of rows with the distributions p and q adds
//
//     λ/2 Σ_v (p_v − q_v) a_v        a = log p − log q        ∂/∂l_p = λ/2 (p (a − Σ_v p_v a_v) + p − q)
//
// and the same for l_q with p and q exchanged. The code processes one row or pair at a time, in the processor's cache,
// whereas each PyTorch operation would read and write all rows.

#include <vector>

#include "vector.h"

namespace {

struct Distribution {
    std::vector<float> p;
    float sum_of_logits;
    float log_normalizer;
};

template <typename T>
void softmax(const T* products, const float* bias, Distribution& result) {
    Index vocabulary = Index(result.p.size());
    float* p = result.p.data();
    float largest = -INFINITY, sum = 0, normalizer = 0;
#pragma omp simd reduction(max : largest) reduction(+ : sum)
    for (Index v = 0; v < vocabulary; v++) {
        p[v] = load(products[v]) + bias[v];
        largest = p[v] > largest ? p[v] : largest;
        sum += p[v];
    }
#pragma omp simd reduction(+ : normalizer)
    for (Index v = 0; v < vocabulary; v++) {
        p[v] = exponential(p[v] - largest);
        normalizer += p[v];
    }
    float scale = 1.0f / normalizer;
#pragma omp simd
    for (Index v = 0; v < vocabulary; v++) p[v] *= scale;
    result.sum_of_logits = sum;
    result.log_normalizer = largest + std::log(normalizer);
}

// Adds the gradient of the divergence to the gradient of a pair of rows, and returns the divergence.
template <typename T>
float agree(float agreement, const T* products, Distribution& first, Distribution& second) {
    Index vocabulary = Index(first.p.size());
    const T* others = products + vocabulary;
    float *p = first.p.data(), *q = second.p.data();
    float shift = first.log_normalizer - second.log_normalizer, mean_p = 0, mean_q = 0;
#pragma omp simd reduction(+ : mean_p, mean_q)
    for (Index v = 0; v < vocabulary; v++) {
        float a = load(products[v]) - load(others[v]) - shift;
        mean_p += p[v] * a;
        mean_q += q[v] * a;
    }
    float half = 0.5f * agreement;
#pragma omp simd
    for (Index v = 0; v < vocabulary; v++) {
        float a = load(products[v]) - load(others[v]) - shift;
        float between = p[v] - q[v];
        p[v] += half * (p[v] * (a - mean_p) + between);
        q[v] += half * (q[v] * (mean_q - a) - between);
    }
    return half * (mean_p - mean_q);
}

// Overwrites the logits with their gradient. losses, nll: [rows]. d_bias: [parts V], to be summed by the caller. The rows
// of a part do not depend on the number of threads.
template <typename T>
void losses_and_gradient(Index rows, Index vocabulary, Index parts, float smoothing, float agreement, T* products,
                         const float* bias, const Index* targets, float* losses, float* nll, float* d_bias) {
    Index step = agreement == 0 ? 1 : 2;
    Index groups = rows / step;
#pragma omp parallel for schedule(static)
    for (Index part = 0; part < parts; part++) {
        std::vector<Distribution> pair(step, {std::vector<float>(vocabulary), 0, 0});
        float* total = d_bias + part * vocabulary;
        float rest = smoothing / vocabulary;
        for (Index group = groups * part / parts; group < groups * (part + 1) / parts; group++) {
            Index first = group * step;
            for (Index i = 0; i < step; i++) {
                Index row = first + i;
                T* place = products + row * vocabulary;
                Distribution& d = pair[i];
                softmax(place, bias, d);
                float gold = load(place[targets[row]]) + bias[targets[row]];
                nll[row] = d.log_normalizer - gold;
                losses[row] = (1 - smoothing) * nll[row] + smoothing * d.log_normalizer - rest * d.sum_of_logits;
            }
            if (step == 2) losses[first] += agree(agreement, products + first * vocabulary, pair[0], pair[1]);
            for (Index i = 0; i < step; i++) {
                T* place = products + (first + i) * vocabulary;
                float* d = pair[i].p.data();
                d[targets[first + i]] -= 1 - smoothing;
#pragma omp simd
                for (Index v = 0; v < vocabulary; v++) {
                    total[v] += d[v] - rest;
                    store(place[v], d[v] - rest);
                }
            }
        }
    }
}

}  // namespace

#define VARIANT(NAME, T)                                                                                             \
    extern "C" void cross_entropy_##NAME(Index rows, Index vocabulary, Index parts, float smoothing,                 \
                                         float agreement, T* products, const float* bias, const Index* targets,      \
                                         float* losses, float* nll, float* d_bias) {                                 \
        losses_and_gradient(rows, vocabulary, parts, smoothing, agreement, products, bias, targets, losses, nll,     \
                            d_bias);                                                                                 \
    }

VARIANT(float32, float)
VARIANT(bfloat16, BFloat16)
