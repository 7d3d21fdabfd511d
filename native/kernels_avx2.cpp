// AVX2, and the popcount instruction for one query, which is the fastest way on these machines.
#include "lanes_avx2.hpp"

namespace densehash {
namespace {

// --- vectors of bytes --------------------------------------------------------------------------
// AVX2 has no products of signed bytes: they are widened to 16 bits, which is exact.

inline __m128i load_16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
inline __m256i wide(const int8_t* from) { return _mm256_cvtepi8_epi16(load_16(from)); }
inline __m256i wide(const uint8_t* from) { return _mm256_cvtepu8_epi16(load_16(from)); }

inline __m128i halves_added(__m256i x) {
  return _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

// 8 rows and one vector, or 4 rows and 2 vectors: enough sums to hide the latency of each.
template <size_t ROWS, size_t VECTORS>
inline void dots_of_tile(const int8_t* vectors, const int8_t* matrix, size_t width, size_t count,
                         int32_t* sums) {
  __m256i tile[VECTORS][ROWS];
  for (size_t v = 0; v < VECTORS; ++v)
    for (size_t r = 0; r < ROWS; ++r) tile[v][r] = _mm256_setzero_si256();
  for (size_t at = 0; at < width; at += 16) {
    __m256i x[VECTORS];
#pragma GCC unroll 2
    for (size_t v = 0; v < VECTORS; ++v) x[v] = wide(vectors + v * width + at);
#pragma GCC unroll 8
    for (size_t r = 0; r < ROWS; ++r) {
      const __m256i y = wide(matrix + r * width + at);
#pragma GCC unroll 2
      for (size_t v = 0; v < VECTORS; ++v)
        tile[v][r] = _mm256_add_epi32(tile[v][r], _mm256_madd_epi16(x[v], y));
    }
  }
#pragma GCC unroll 2
  for (size_t v = 0; v < VECTORS; ++v)
#pragma GCC unroll 2
    for (size_t r = 0; r < ROWS; r += 4) {
      const __m256i two = _mm256_hadd_epi32(tile[v][r], tile[v][r + 1]);
      const __m256i other = _mm256_hadd_epi32(tile[v][r + 2], tile[v][r + 3]);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + v * count + r),
                       halves_added(_mm256_hadd_epi32(two, other)));
    }
}

void squares(const uint8_t* query, const uint8_t* rows, size_t width, const size_t* positions,
             size_t count, Sums* sums) {
  constexpr size_t kAhead = 16;  // rows are far apart: each is fetched while others are compared
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count)
      for (size_t at = 0; at < width; at += 64)
        __builtin_prefetch(rows + positions[i + kAhead] * width + at);
    const uint8_t* row = rows + positions[i] * width;
    __m256i even = _mm256_setzero_si256(), odd = even;
    size_t at = 0;
    for (; at + 32 <= width; at += 32) {
      const __m256i x = _mm256_sub_epi16(wide(query + at), wide(row + at));
      const __m256i y = _mm256_sub_epi16(wide(query + at + 16), wide(row + at + 16));
      even = _mm256_add_epi32(even, _mm256_madd_epi16(x, x));
      odd = _mm256_add_epi32(odd, _mm256_madd_epi16(y, y));
    }
    __m128i four = halves_added(_mm256_add_epi32(even, odd));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    uint32_t sum = static_cast<uint32_t>(_mm_cvtsi128_si32(four));
    for (; at < width; ++at) {
      const int difference = query[at] - row[at];
      sum += static_cast<uint32_t>(difference * difference);
    }
    sums[i] = {static_cast<double>(sum), 0};
  }
}

void dots(const int8_t* vectors, size_t n_vectors, const int8_t* matrix, size_t width,
          size_t count, int32_t* sums) {
  for (size_t row = 0; row < count; row += 8, matrix += 8 * width) {
    size_t v = 0;
    for (; v + 2 <= n_vectors; v += 2)
      for (size_t r = 0; r < 8; r += 4)
        dots_of_tile<4, 2>(vectors + v * width, matrix + r * width, width, count,
                           sums + v * count + row + r);
    if (v < n_vectors)
      dots_of_tile<8, 1>(vectors + v * width, matrix, width, count, sums + v * count + row);
  }
}

}  // namespace

void use_avx2(Kernels& kernels) {
  use_lanes(kernels);
  kernels.row8 = row<uint8_t>;
  kernels.row16 = row<uint16_t>;
  kernels.count8 = count_row<row<uint8_t>>;
  kernels.squares = squares;
  kernels.dots = dots;
}

}  // namespace densehash
