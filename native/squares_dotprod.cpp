// ARM with the dot product of bytes: half the steps of what else there is.
#include <arm_neon.h>

#include "squares.hpp"

namespace densehash {

void squares_dotprod(const uint8_t* query, const uint8_t* rows, size_t width,
                     const size_t* positions, size_t count, Sums* sums) {
  constexpr size_t kAhead = 16;  // rows lie far apart: each is asked for while others are compared
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

void dots_dotprod(const int8_t* vector, const int8_t* matrix, size_t width, size_t count,
                  int32_t* sums) {
  for (size_t row = 0; row < count; row += 4, matrix += 4 * width) {
    int32x4_t of_rows[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
    for (size_t at = 0; at < width; at += 16) {
      const int8x16_t x = vld1q_s8(vector + at);
      for (size_t r = 0; r < 4; ++r)
        of_rows[r] = vdotq_s32(of_rows[r], x, vld1q_s8(matrix + r * width + at));
    }
    vst1q_s32(sums + row, vpaddq_s32(vpaddq_s32(of_rows[0], of_rows[1]),
                                     vpaddq_s32(of_rows[2], of_rows[3])));
  }
}

}  // namespace densehash
