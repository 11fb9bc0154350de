// Matrix products of a search, see float32_product.cpp and int8_product.cpp.
#pragma once

#include "vector.h"

extern "C" void float32_product(Index rows, Index inputs, Index outputs, const float* x, const void* packed,
                                const float* bias, float* y);
extern "C" bool has_int8_product();
extern "C" void int8_product(Index rows, Index inputs, Index outputs, const float* x, const void* packed,
                             const float* bias, float* y);
extern "C" void search_quantize(Index rows, Index size, const float* x_rows, unsigned char* low_rows, float* scales);
