// y = x Wᵀ + b in 8-bit integers, with the VNNI instructions of AVX-512. Equivalent of `_int8` in model/layers/packed.py.
//
// A row x is quantized to ⌊128.5 + 127 x / max|x|⌋, and a row of W to [−127 … 127]. The instruction adds four products
// of an unsigned and a signed integer to each of 16 sums. Dimensions: N rows, K inputs, O outputs.

#include "products.h"

#include <algorithm>
#include <vector>

#ifdef __AVX512VNNI__
#include <immintrin.h>

namespace {

constexpr Index GROUP = 64;  // outputs that are computed together, in four registers
constexpr int ROWS = 6;      // rows that are computed together: 6 · 4 sums fit into the 32 registers

// Computes GROUP outputs of R rows. x [R stride], weights [stride/4 GROUP 4]; the outputs of a row are `outputs` elements apart.
template <int R>
void multiply(Index stride, const unsigned char* x, const float* largest, const signed char* weights, const float* scales,
              const int* offsets, const float* bias, Index columns, Index outputs, float* y) {
    __m512i sums[R][4];
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) sums[i][g] = _mm512_setzero_si512();
    for (Index k = 0; k < stride; k += 4) {
        __m512i w[4];
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) w[g] = _mm512_loadu_si512(weights + k * GROUP + 64 * g);
#pragma GCC unroll 8
        for (int i = 0; i < R; i++) {
            int four;
            std::memcpy(&four, x + i * stride + k, 4);
            const __m512i same = _mm512_set1_epi32(four);
            // Not _mm512_dpbusd_epi32, because GCC 12 copies all sums at each call, which takes twice the time.
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++) asm("vpdpbusd %2, %1, %0" : "+v"(sums[i][g]) : "v"(same), "v"(w[g]));
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            const Index left = std::clamp<Index>(columns - 16 * g, 0, 16);
            const __mmask16 mask = __mmask16((1u << left) - 1);
            const __m512i sum = _mm512_sub_epi32(sums[i][g], _mm512_loadu_si512(offsets + 16 * g));
            const __m512 factor = _mm512_mul_ps(_mm512_set1_ps(largest[i]), _mm512_loadu_ps(scales + 16 * g));
            const __m512 added = _mm512_maskz_loadu_ps(mask, bias + 16 * g);
            _mm512_mask_storeu_ps(y + i * outputs + 16 * g, mask, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), factor, added));
        }
}

using Function = decltype(&multiply<1>);
constexpr Function FUNCTIONS[] = {multiply<1>, multiply<2>, multiply<3>, multiply<4>, multiply<5>, multiply<6>};

}  // namespace

extern "C" bool has_int8_product() { return true; }

// x [N K], y [N O]; packed: scales [O'], offsets 128 Σₖ W [O'], weights [O'/64 K'/4 64 4], with O' and K' rounded up to
// multiples of 64 and 4 (`pack_int8` in native_decoding.py).
extern "C" void int8_product(Index rows, Index inputs, Index outputs, const float* x, const void* packed,
                             const float* bias, float* y) {
    const Index stride = (inputs + 3) / 4 * 4, groups = (outputs + GROUP - 1) / GROUP;
    const float* scales = static_cast<const float*>(packed);
    const int* offsets = reinterpret_cast<const int*>(scales + groups * GROUP);
    const signed char* weights = reinterpret_cast<const signed char*>(offsets + groups * GROUP);
    thread_local std::vector<unsigned char> buffer;
    thread_local std::vector<float> largest;
    buffer.resize(rows * stride);  // the weights of the padding up to `stride` are 0
    largest.resize(rows);
    for (Index i = 0; i < rows; i++) search_quantize(1, inputs, x + i * inputs, &buffer[i * stride], &largest[i]);
    const unsigned char* low = buffer.data();
    const float* maxima = largest.data();
#pragma omp parallel for if (rows * inputs * outputs > 1000000)
    for (Index g = 0; g < groups; g++)
        for (Index i = 0; i < rows; i += ROWS) {
            const Index first = g * GROUP, some = std::min<Index>(ROWS, rows - i);
            FUNCTIONS[some - 1](stride, low + i * stride, maxima + i, weights + first * stride, scales + first,
                                offsets + first, bias + first, outputs - first, outputs, y + i * outputs + first);
        }
}
#else
extern "C" bool has_int8_product() { return false; }

extern "C" void int8_product(Index, Index, Index, const float*, const void*, const float*, float*) {}
#endif
