// NEON with the dot product of bytes, which takes half the steps of other ways.
#include <arm_neon.h>

#include "kernels.hpp"

namespace densehash {
namespace {

void squares(const uint8_t* query, const uint8_t* rows, size_t width, const size_t* positions,
             size_t count, Sums* sums) {
  constexpr size_t kAhead = 16;  // rows are far apart: each is fetched while others are compared
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count)
      for (size_t at = 0; at < width; at += 64)
        __builtin_prefetch(rows + positions[i + kAhead] * width + at);
    const uint8_t* row = rows + positions[i] * width;
    uint32x4_t even = vdupq_n_u32(0), odd = even;
    size_t at = 0;
    for (; at + 32 <= width; at += 32) {
      const uint8x16_t x = vabdq_u8(vld1q_u8(query + at), vld1q_u8(row + at));
      const uint8x16_t y = vabdq_u8(vld1q_u8(query + at + 16), vld1q_u8(row + at + 16));
      even = vdotq_u32(even, x, x);
      odd = vdotq_u32(odd, y, y);
    }
    uint32_t sum = vaddvq_u32(vaddq_u32(even, odd));
    for (; at < width; ++at) {
      const int difference = query[at] - row[at];
      sum += static_cast<uint32_t>(difference * difference);
    }
    sums[i] = {static_cast<double>(sum), 0};
  }
}

// 8 rows and one vector, or 4 rows and 4 vectors: enough sums to hide the latency of each.
template <size_t ROWS, size_t VECTORS>
void dots_of_tile(const int8_t* vectors, const int8_t* matrix, size_t width, size_t count,
                  int32_t* sums) {
  int32x4_t tile[VECTORS][ROWS];
  for (size_t v = 0; v < VECTORS; ++v)
    for (size_t r = 0; r < ROWS; ++r) tile[v][r] = vdupq_n_s32(0);
  for (size_t at = 0; at < width; at += 16) {
    int8x16_t x[VECTORS];
#pragma GCC unroll 4
    for (size_t v = 0; v < VECTORS; ++v) x[v] = vld1q_s8(vectors + v * width + at);
#pragma GCC unroll 8
    for (size_t r = 0; r < ROWS; ++r) {
      const int8x16_t y = vld1q_s8(matrix + r * width + at);
#pragma GCC unroll 4
      for (size_t v = 0; v < VECTORS; ++v) tile[v][r] = vdotq_s32(tile[v][r], x[v], y);
    }
  }
#pragma GCC unroll 4
  for (size_t v = 0; v < VECTORS; ++v)
#pragma GCC unroll 2
    for (size_t r = 0; r < ROWS; r += 4)
      vst1q_s32(sums + v * count + r, vpaddq_s32(vpaddq_s32(tile[v][r], tile[v][r + 1]),
                                                 vpaddq_s32(tile[v][r + 2], tile[v][r + 3])));
}

void dots(const int8_t* vectors, size_t n_vectors, const int8_t* matrix, size_t width,
          size_t count, int32_t* sums) {
  for (size_t row = 0; row < count; row += 8, matrix += 8 * width) {
    size_t v = 0;
    for (; v + 4 <= n_vectors; v += 4)
      for (size_t r = 0; r < 8; r += 4)
        dots_of_tile<4, 4>(vectors + v * width, matrix + r * width, width, count,
                           sums + v * count + row + r);
    for (; v < n_vectors; ++v)
      dots_of_tile<8, 1>(vectors + v * width, matrix, width, count, sums + v * count + row);
  }
}

}  // namespace

void use_dotprod(Kernels& kernels) {
  kernels.squares = squares;
  kernels.dots = dots;
}

}  // namespace densehash
