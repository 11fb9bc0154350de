// One step of gated recurrent units, see layers/cells/gru.py:
//
//     r = σ(a_r + u_r)    z = σ(a_z + u_z)    n = tanh(a_n + r u_n)    h' = n + z (h − n)
//
// Backward pass, with δ = ∂L/∂h':
//
//     δ_h = δ z  (+ the gradient through u)        δ_an = δ (1 − z) (1 − n²)        δ_un = δ_an r
//     δ_az = δ_uz = δ (h − n) z (1 − z)               δ_ar = δ_ur = δ_an u_n r (1 − r)
//
// It recomputes r, z and n, so that only the inputs are stored. a may be a slice of a larger tensor: blocks of `block`
// rows are `block_stride` elements apart, and the rows of a block are `stride` elements apart.

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

template <typename T>
void forward(Index rows, Index size, Index block, Index block_stride, Index stride, Index u_stride, const T* a_rows,
             const T* u_rows, const float* h_rows, float* next_rows) {
#pragma omp parallel for schedule(static) if (rows > 16)
    for (Index row = 0; row < rows; row++) {
        const T* a = a_rows + row / block * block_stride + row % block * stride;
        const T* u = u_rows + row * u_stride;
        const float* h = h_rows + row * size;
        float* next = next_rows + row * size;
#pragma omp simd
        for (Index i = 0; i < size; i++) {
            Gates g = gates(a, u, size, i);
            next[i] = g.n + g.z * (h[i] - g.n);
        }
    }
}

template <typename T>
void backward(Index rows, Index size, Index block, Index block_stride, Index stride, Index u_stride, const T* a_rows,
              const T* u_rows, const float* h_rows, const float* d_rows, T* da_rows, T* du_rows, float* dh_rows) {
#pragma omp parallel for schedule(static)
    for (Index row = 0; row < rows; row++) {
        const T* a = a_rows + row / block * block_stride + row % block * stride;
        const T* u = u_rows + row * u_stride;
        const float *h = h_rows + row * size, *d = d_rows + row * size;
        T *da = da_rows + row * 3 * size, *du = du_rows + row * 3 * size;
        float* dh = dh_rows + row * size;
#pragma omp simd
        for (Index i = 0; i < size; i++) {
            Gates g = gates(a, u, size, i);
            float d_n = d[i] * (1.0f - g.z) * (1.0f - g.n * g.n);
            float d_z = d[i] * (h[i] - g.n) * g.z * (1.0f - g.z);
            float d_r = d_n * load(u[i + 2 * size]) * g.r * (1.0f - g.r);
            dh[i] = d[i] * g.z;
            store(da[i], d_r);
            store(da[i + size], d_z);
            store(da[i + 2 * size], d_n);
            store(du[i], d_r);
            store(du[i + size], d_z);
            store(du[i + 2 * size], d_n * g.r);
        }
    }
}

}  // namespace

#define VARIANT(NAME, T)                                                                                             \
    extern "C" void gru_##NAME(Index rows, Index size, Index block, Index block_stride, Index stride,                \
                               Index u_stride, const T* a, const T* u, const float* h, float* next) {                \
        forward(rows, size, block, block_stride, stride, u_stride, a, u, h, next);                                   \
    }                                                                                                                \
    extern "C" void gru_backward_##NAME(Index rows, Index size, Index block, Index block_stride, Index stride,       \
                                        Index u_stride, const T* a, const T* u, const float* h, const float* d,      \
                                        T* da, T* du, float* dh) {                                                   \
        backward(rows, size, block, block_stride, stride, u_stride, a, u, h, d, da, du, dh);                         \
    }

VARIANT(float32, float)
VARIANT(bfloat16, BFloat16)
