// Element-wise functions that the compiler vectorises, and the two data types of the C++ extension.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

using Index = std::int64_t;

// A bfloat16 number: the upper half of a float32.
struct BFloat16 {
    std::uint16_t bits;
};

inline float load(float x) { return x; }

inline float load(BFloat16 x) {
    std::uint32_t bits = std::uint32_t(x.bits) << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

inline void store(float& place, float x) { place = x; }

// Rounds to the nearest bfloat16, ties to even.
inline void store(BFloat16& place, float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    place.bits = std::uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// eˣ = 2ⁿ eʳ with |r| ≤ ln 2 / 2, and a minimax polynomial of eʳ (relative error below 4·10⁻⁷ with fused
// multiply-add). NaN stays NaN; below −87 the result is 0, because the denormal numbers of that range are slow.
inline float exponential(float x) {
    constexpr float ROUNDING = 12582912;  // 1.5·2²³: the sum with it is rounded to an integer, and its lowest bits are n
    bool is_tiny = x < -87.0f;
    x = is_tiny ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float shifted = x * 1.44269504f + ROUNDING;
    float r = x - (shifted - ROUNDING) * 0.693147181f;
    float series = 8.31252092e-3f;
    series = series * r + 4.18901582e-2f;
    series = series * r + 0.166671146f;
    series = series * r + 0.499992315f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    std::uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return is_tiny ? 0.0f : series * power;
}

inline float logistic(float x) { return 1.0f / (1.0f + exponential(-x)); }

// tanh x = 1 − 2 / (1 + e²ˣ), from 2x.
inline float tanh_of_half(float twice_x) { return 1.0f - 2.0f / (1.0f + exponential(twice_x)); }

// Power e²ᑫ of a query q of additive scores. Larger exponents would change no tanh if a key is |k| ≤ 34, as
// 1 − 2 / (1 + e¹⁸) is 1 in float32, but could overflow.
inline float power_of_query(float q) {
    q *= 2.0f;
    return exponential(q < -52.0f ? -52.0f : q > 52.0f ? 52.0f : q);
}

// tanh(q + k / 2) from the powers e²ᑫ and eᵏ.
inline float tanh_of_powers(float q, float k) { return 1.0f - 2.0f / (1.0f + q * k); }
