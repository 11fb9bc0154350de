// One step of gated recurrent units, see layers/cells/gru.py:
//
//     r = σ(a_r + u_r)    z = σ(a_z + u_z)    n = tanh(a_n + r u_n)    h' = n + z (h − n)
//
// Backward pass, with δ = ∂L/∂h':
//
//     δ_h = δ z  (+ the gradient through u)        δ_an = δ (1 − z) (1 − n²)        δ_un = δ_an r
//     δ_az = δ_uz = δ (h − n) z (1 − z)               δ_ar = δ_ur = δ_an u_n r (1 − r)
//
// It recomputes r, z and n, so that only the inputs are stored.
//
// Each direction d of a sequence has a row for each of B sentences. Input gates, outputs and their gradients are stored by
// sentence, [B T D …], with `stride` elements from a sentence to the next. State gates, states and their gradients are
// stored by direction; the pointers are those of the current step of direction 0, and `u_direction` and `h_direction`
// elements lead to the next direction. `order` [B T] has the positions that direction 1 reads at each step.

#include "vector.h"

namespace {

struct Gates {
    float r, z, n;
};

template <typename T>
inline Gates gates(const T* a, const T* u, Index size, Index i) {
    Gates g;
    g.r = logistic(load(a[i]) + load(u[i]));
    g.z = logistic(load(a[i + size]) + load(u[i + size]));
    g.n = tanh_of_half(2.0f * (load(a[i + 2 * size]) + g.r * load(u[i + 2 * size])));
    return g;
}

// Sizes and strides of a sequence, and the step t to compute.
struct Step {
    Index directions, sentences, steps, size, t, stride, u_stride, u_direction, h_direction;
    const Index* order;

    // Number of vectors [B T D] before the one that direction d of sentence b reads, from the start of the sentence.
    Index place(Index d, Index b) const { return (d ? order[b * steps + t] : t) * directions + d; }
};

template <typename T>
void forward(const Step& s, const T* a_rows, const T* u_rows, const float* h_rows, float* next_rows, T* low_rows,
             float* outputs) {
#pragma omp parallel for schedule(static) if (s.directions * s.sentences > 16)
    for (Index row = 0; row < s.directions * s.sentences; row++) {
        const Index d = row / s.sentences, b = row % s.sentences, place = s.place(d, b);
        const T *a = a_rows + b * s.stride + place * 3 * s.size, *u = u_rows + d * s.u_direction + b * s.u_stride;
        const Index state = d * s.h_direction + b * s.size;
        const float* h = h_rows + state;
        float *next = next_rows + state, *output = outputs ? outputs + (b * s.steps * s.directions + place) * s.size : next;
#pragma omp simd
        for (Index i = 0; i < s.size; i++) {
            Gates g = gates(a, u, s.size, i);
            next[i] = output[i] = g.n + g.z * (h[i] - g.n);
        }
        if (low_rows)
            for (Index i = 0; i < s.size; i++) store(low_rows[state + i], next[i]);
    }
}

// d: gradients of the outputs; product: of the state, through the state gates of the next step, null in the last step;
// dh: through z of the next step, overwritten by those through z of this step.
template <typename T>
void backward(const Step& s, const T* a_rows, const T* u_rows, const float* h_rows, const float* d_rows,
              const T* product_rows, T* da_rows, T* du_rows, float* dh_rows) {
#pragma omp parallel for schedule(static)
    for (Index row = 0; row < s.directions * s.sentences; row++) {
        const Index d = row / s.sentences, b = row % s.sentences, place = s.place(d, b);
        const Index vector = b * s.steps * s.directions + place, gate = d * s.u_direction + b * 3 * s.size;
        const T *a = a_rows + b * s.stride + place * 3 * s.size, *u = u_rows + d * s.u_direction + b * s.u_stride;
        const float *h = h_rows + d * s.h_direction + b * s.size, *d_output = d_rows + vector * s.size;
        const T* product = product_rows + row * s.size;
        T *da = da_rows + vector * 3 * s.size, *du = du_rows + gate;
        float* dh = dh_rows + row * s.size;
        if (product_rows)
            for (Index i = 0; i < s.size; i++) dh[i] += d_output[i] + load(product[i]);
        else
            for (Index i = 0; i < s.size; i++) dh[i] = d_output[i];
#pragma omp simd
        for (Index i = 0; i < s.size; i++) {
            Gates g = gates(a, u, s.size, i);
            float d_n = dh[i] * (1.0f - g.z) * (1.0f - g.n * g.n);
            float d_z = dh[i] * (h[i] - g.n) * g.z * (1.0f - g.z);
            float d_r = d_n * load(u[i + 2 * s.size]) * g.r * (1.0f - g.r);
            dh[i] *= g.z;
            store(da[i], d_r);
            store(da[i + s.size], d_z);
            store(da[i + 2 * s.size], d_n);
            store(du[i], d_r);
            store(du[i + s.size], d_z);
            store(du[i + 2 * s.size], d_n * g.r);
        }
    }
}

}  // namespace

#define STEP                                                                                                         \
    Index directions, Index sentences, Index steps, Index size, Index t, Index stride, Index u_stride,               \
        Index u_direction, Index h_direction, const Index *order
#define VARIANT(NAME, T)                                                                                             \
    extern "C" void gru_##NAME(STEP, const T* a, const T* u, const float* h, float* next, T* low, float* outputs) {  \
        forward({directions, sentences, steps, size, t, stride, u_stride, u_direction, h_direction, order}, a, u, h, \
                next, low, outputs);                                                                                 \
    }                                                                                                                \
    extern "C" void gru_backward_##NAME(STEP, const T* a, const T* u, const float* h, const float* d,                \
                                        const T* product, T* da, T* du, float* dh) {                                 \
        backward({directions, sentences, steps, size, t, stride, u_stride, u_direction, h_direction, order}, a, u,   \
                 h, d, product, da, du, dh);                                                                         \
    }

VARIANT(float32, float)
VARIANT(bfloat16, BFloat16)
