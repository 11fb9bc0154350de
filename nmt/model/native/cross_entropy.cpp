// Cross-entropy with label smoothing ε and its gradient for rows of logits l = product + bias, see
// layers/fused_cross_entropy.py:
//
//     loss = −(1−ε) log p_y − ε/V Σ_v log p_v          ∂loss/∂l = p − (1−ε) 1_y − ε/V
//
// One row at a time stays in the processor's cache; PyTorch's operations would each read and write all rows.

#include <vector>

#include "vector.h"

namespace {

// Writes the gradient over the products. losses, nll: [rows]. d_bias: [parts V], to be summed by the caller; part i has
// the rows from i rows / parts on, whatever the number of threads.
template <typename T>
void losses_and_gradient(Index rows, Index vocabulary, Index parts, float smoothing, T* products,
                         const float* bias, const Index* targets, float* losses, float* nll, float* d_bias) {
#pragma omp parallel for schedule(static)
    for (Index part = 0; part < parts; part++) {
        std::vector<float> logits(vocabulary);
        float* l = logits.data();
        float* total = d_bias + part * vocabulary;
        for (Index row = rows * part / parts; row < rows * (part + 1) / parts; row++) {
            T* place = products + row * vocabulary;
            float largest = -INFINITY, sum = 0;
#pragma omp simd reduction(max : largest) reduction(+ : sum)
            for (Index v = 0; v < vocabulary; v++) {
                l[v] = load(place[v]) + bias[v];
                largest = l[v] > largest ? l[v] : largest;
                sum += l[v];
            }
            float gold = l[targets[row]], normalizer = 0;
#pragma omp simd reduction(+ : normalizer)
            for (Index v = 0; v < vocabulary; v++) {
                l[v] = exponential(l[v] - largest);
                normalizer += l[v];
            }
            float log_normalizer = largest + std::log(normalizer), scale = 1.0f / normalizer;
            float rest = smoothing / vocabulary;
            nll[row] = log_normalizer - gold;
            losses[row] = (1.0f - smoothing) * nll[row] + smoothing * log_normalizer - rest * sum;
            l[targets[row]] -= (1.0f - smoothing) * normalizer;
#pragma omp simd
            for (Index v = 0; v < vocabulary; v++) {
                float d = l[v] * scale - rest;
                total[v] += d;
                store(place[v], d);
            }
        }
    }
}

}  // namespace

#define VARIANT(NAME, T)                                                                                             \
    extern "C" void cross_entropy_##NAME(Index rows, Index vocabulary, Index parts, float smoothing, T* products,    \
                                         const float* bias, const Index* targets, float* losses, float* nll,         \
                                         float* d_bias) {                                                            \
        losses_and_gradient(rows, vocabulary, parts, smoothing, products, bias, targets, losses, nll, d_bias);       \
    }

VARIANT(float32, float)
VARIANT(bfloat16, BFloat16)
