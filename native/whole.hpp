// Vectors as whole numbers, for products of bytes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace densehash {

// The width that kernels of products need: a multiple of 16.
inline size_t padded_width_for(size_t width) { return (width + 15) / 16 * 16; }

// Writes a vector as whole numbers up to 127; returns the value of 1.
inline float to_whole(const float* vector, size_t width, int8_t* to) {
  float largest = 0;
  for (size_t i = 0; i < width; ++i) largest = std::max(largest, std::fabs(vector[i]));
  if (!(largest > 0)) {
    std::fill_n(to, width, int8_t{0});
    return 0;
  }
  const float times = 127 / largest;
  for (size_t i = 0; i < width; ++i)
    to[i] = static_cast<int8_t>(vector[i] * times + (vector[i] < 0 ? -0.5f : 0.5f));
  return largest / 127;
}

}  // namespace densehash
