// y = x Wᵀ + b in float32. For the few rows of a search, BLAS functions take two to three times as long.
//
// Dimensions: N rows, K inputs, O outputs. W is stored in groups of outputs, so that it is read in order, and once for
// ROWS rows, whose sums stay in registers. A row's result does not depend on the other rows.

#include "products.h"

#include <algorithm>
#include <iterator>

namespace {

#if defined(__AVX512F__)
constexpr int WIDTH = 16, VECTORS = 4, ROWS = 6;  // of 32 registers, 24 contain sums
#elif defined(__AVX__)
constexpr int WIDTH = 8, VECTORS = 2, ROWS = 6;  // 12 of 16
#else
constexpr int WIDTH = 4, VECTORS = 2, ROWS = 6;
#endif
constexpr Index GROUP = WIDTH * VECTORS;
typedef float Vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

// Computes `columns` outputs of R rows. x [R K], weights [K GROUP]; the outputs of a row are `outputs` elements apart.
template <int R>
void multiply(Index inputs, const float* x, const float* weights, const float* bias, Index columns, Index outputs, float* y) {
    Vector sums[R][VECTORS];
    float padded[GROUP] = {};
    std::copy_n(bias, columns, padded);
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int g = 0; g < VECTORS; g++) sums[i][g] = *reinterpret_cast<const Vector*>(padded + g * WIDTH);
    for (Index k = 0; k < inputs; k++) {
        // Volatile, so that each vector is loaded once and not once per row.
        const volatile Vector* place = reinterpret_cast<const volatile Vector*>(weights + k * GROUP);
        Vector w[VECTORS];
#pragma GCC unroll 4
        for (int g = 0; g < VECTORS; g++) w[g] = place[g];
#pragma GCC unroll 8
        for (int i = 0; i < R; i++)
#pragma GCC unroll 4
            for (int g = 0; g < VECTORS; g++) sums[i][g] += x[i * inputs + k] * w[g];
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; i++) {
#pragma GCC unroll 4
        for (int g = 0; g < VECTORS; g++) *reinterpret_cast<Vector*>(padded + g * WIDTH) = sums[i][g];
        std::copy_n(padded, columns, y + i * outputs);
    }
}

using Function = decltype(&multiply<1>);
constexpr Function FUNCTIONS[] = {multiply<1>, multiply<2>, multiply<3>, multiply<4>, multiply<5>, multiply<6>};
static_assert(std::size(FUNCTIONS) == ROWS);

}  // namespace

extern "C" Index float32_group() { return GROUP; }

// x [N K], y [N O]; packed: W [O'/GROUP K GROUP], with O' = O rounded up (`pack_float32` in native_decoding.py).
extern "C" void float32_product(Index rows, Index inputs, Index outputs, const float* x, const void* packed,
                                const float* bias, float* y) {
    const float* weights = static_cast<const float*>(packed);
#pragma omp parallel for if (rows * inputs * outputs > 1000000)
    for (Index first = 0; first < outputs; first += GROUP)
        for (Index i = 0; i < rows; i += ROWS)
            FUNCTIONS[std::min<Index>(ROWS, rows - i) - 1](inputs, x + i * inputs, weights + first * inputs, bias + first,
                                                           std::min(GROUP, outputs - first), outputs, y + i * outputs + first);
}
