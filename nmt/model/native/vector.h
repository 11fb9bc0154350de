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

// eˣ = 2ⁿ eʳ with |r| ≤ ln 2 / 2, and the Taylor series of eʳ up to r⁷ (relative error below 2·10⁻⁷). NaN stays NaN;
// below −87 the result is 0, because the denormal numbers of that range are slow.
inline float exponential(float x) {
    bool is_tiny = x < -87.0f;
    x = is_tiny ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float n = __builtin_rintf(x * 1.44269504f);
    float r = x - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    float series = 1.0f / 5040;
    series = series * r + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    std::int32_t bits = (std::int32_t(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return is_tiny ? 0.0f : series * power;
}

inline float logistic(float x) { return 1.0f / (1.0f + exponential(-x)); }

// tanh x = 1 − 2 / (1 + e²ˣ), from 2x.
inline float tanh_of_half(float twice_x) { return 1.0f - 2.0f / (1.0f + exponential(twice_x)); }
