// The limit: load, xor, count the bits, add. Nothing is compared, selected or stored, so no exact
// search that processes every bit of every code by these steps can be faster.
//
// Codes are word-major in groups of 16: word 0 of sixteen codes, then word 1 of them, and so on.
// That avoids horizontal sums for wide codes. A block of codes that fits the first-level cache is
// compared with all queries before the next block is loaded. The xor of all distances is returned,
// so that no compiler can leave the work out and a caller can check it.

#include <cstddef>
#include <cstdint>

#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

constexpr size_t kGroup = 16;           // codes
constexpr size_t kBlock = 16 * 1024;    // bytes

#if defined(__ARM_NEON)

// Eight counts, one byte each, for two codes; their word w is at codes[w * kGroup].
template <size_t W>
inline uint8x16_t count_bytes(const uint8x16_t* words, const uint64_t* codes) {
  uint8x16_t sum = vdupq_n_u8(0);
#pragma GCC unroll 8
  for (size_t w = 0; w < W; ++w) {
    const uint8x16_t code = vreinterpretq_u8_u64(vld1q_u64(codes + w * kGroup));
    const uint8x16_t count = vcntq_u8(veorq_u8(code, words[w]));
    sum = w == 0 ? count : vaddq_u8(sum, count);
  }
  return sum;
}

// Four counts for each of four codes.
template <size_t W>
inline uint8x16_t count_four(const uint8x16_t* words, const uint64_t* codes) {
  return vpaddq_u8(count_bytes<W>(words, codes), count_bytes<W>(words, codes + 2));
}

// The distances of sixteen codes as bytes, or the xor of two halves if they need 16 bits.
template <size_t W>
inline uint8x16_t count_group(const uint8x16_t* words, const uint64_t* codes) {
  const uint8x16_t a = count_four<W>(words, codes), b = count_four<W>(words, codes + 4);
  const uint8x16_t c = count_four<W>(words, codes + 8), d = count_four<W>(words, codes + 12);
  if constexpr (W < 4) {
    return vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
  } else if constexpr (W == 4) {
    return vreinterpretq_u8_u16(
        veorq_u16(vpaddlq_u8(vpaddq_u8(a, b)), vpaddlq_u8(vpaddq_u8(c, d))));
  } else {
    return vreinterpretq_u8_u16(veorq_u16(vpaddq_u16(vpaddlq_u8(a), vpaddlq_u8(b)),
                                          vpaddq_u16(vpaddlq_u8(c), vpaddlq_u8(d))));
  }
}

template <size_t W>
uint64_t block(const uint64_t* query, const uint64_t* codes, size_t n_groups) {
  uint8x16_t words[W];
  for (size_t w = 0; w < W; ++w) words[w] = vreinterpretq_u8_u64(vdupq_n_u64(query[w]));
  uint8x16_t check = vdupq_n_u8(0);
  for (size_t g = 0; g < n_groups; ++g, codes += W * kGroup) {
    check = veorq_u8(check, count_group<W>(words, codes));
  }
  const uint64x2_t halves = vreinterpretq_u64_u8(check);
  uint64_t both = vgetq_lane_u64(halves, 0) ^ vgetq_lane_u64(halves, 1);
  both ^= both >> 32;
  both ^= both >> 16;
  return W < 4 ? (both ^ both >> 8) & 0xff : both & 0xffff;
}

#elif defined(__AVX512VPOPCNTDQ__)

template <size_t W>
uint64_t block(const uint64_t* query, const uint64_t* codes, size_t n_groups) {
  __m512i words[W];
  for (size_t w = 0; w < W; ++w) words[w] = _mm512_set1_epi64(static_cast<long long>(query[w]));
  __m512i check[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (size_t g = 0; g < n_groups; ++g, codes += W * kGroup) {
    for (size_t i = 0; i < 2; ++i) {
      __m512i sum = _mm512_setzero_si512();
      for (size_t w = 0; w < W; ++w) {
        const __m512i code = _mm512_loadu_si512(codes + w * kGroup + 8 * i);
        const __m512i count = _mm512_popcnt_epi64(_mm512_xor_si512(code, words[w]));
        sum = w == 0 ? count : _mm512_add_epi64(sum, count);
      }
      check[i] = _mm512_xor_si512(check[i], sum);
    }
  }
  uint64_t lanes[8], all = 0;
  _mm512_storeu_si512(lanes, _mm512_xor_si512(check[0], check[1]));
  for (const uint64_t lane : lanes) all ^= lane;
  return all;
}

#elif defined(__AVX2__)

// The number of bits of each byte: two lookups of half a byte.
inline __m256i count_bytes(__m256i bytes) {
  const __m256i table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
  const __m256i low = _mm256_set1_epi8(15);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low);
  return _mm256_add_epi8(_mm256_shuffle_epi8(table, _mm256_and_si256(bytes, low)),
                         _mm256_shuffle_epi8(table, high));
}

template <size_t W>
uint64_t block(const uint64_t* query, const uint64_t* codes, size_t n_groups) {
  __m256i words[W];
  for (size_t w = 0; w < W; ++w) words[w] = _mm256_set1_epi64x(static_cast<long long>(query[w]));
  __m256i check = _mm256_setzero_si256();
  for (size_t g = 0; g < n_groups; ++g, codes += W * kGroup) {
    for (size_t i = 0; i < 4; ++i) {
      __m256i sum = _mm256_setzero_si256();
      for (size_t w = 0; w < W; ++w) {
        const auto* at = reinterpret_cast<const __m256i*>(codes + w * kGroup + 4 * i);
        const __m256i count = count_bytes(_mm256_xor_si256(_mm256_loadu_si256(at), words[w]));
        sum = w == 0 ? count : _mm256_add_epi8(sum, count);
      }
      check = _mm256_xor_si256(check, _mm256_sad_epu8(sum, _mm256_setzero_si256()));
    }
  }
  uint64_t lanes[4], all = 0;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), check);
  for (const uint64_t lane : lanes) all ^= lane;
  return all;
}

#else

template <size_t W>
uint64_t block(const uint64_t* query, const uint64_t* codes, size_t n_groups) {
  uint64_t check = 0;
  for (size_t g = 0; g < n_groups; ++g, codes += W * kGroup) {
    for (size_t i = 0; i < kGroup; ++i) {
      uint64_t sum = 0;
      for (size_t w = 0; w < W; ++w) {
        sum += static_cast<uint64_t>(__builtin_popcountll(codes[w * kGroup + i] ^ query[w]));
      }
      check ^= sum;
    }
  }
  return check;
}

#endif

template <size_t W>
uint64_t all(const uint64_t* queries, size_t n_queries, const uint64_t* codes, size_t n_groups) {
  constexpr size_t step = kBlock / (W * kGroup * sizeof(uint64_t));
  uint64_t check = 0;
  for (size_t first = 0; first < n_groups; first += step) {
    const size_t count = n_groups - first < step ? n_groups - first : step;
    for (size_t q = 0; q < n_queries; ++q) {
      check ^= block<W>(queries + q * W, codes + first * W * kGroup, count);
    }
  }
  return check;
}

}  // namespace

// The xor of all distances; all ones if there is no loop for this number of words.
extern "C" uint64_t limit(const uint64_t* queries, size_t n_queries, const uint64_t* codes,
                          size_t n_groups, size_t words) {
  switch (words) {
    case 1: return all<1>(queries, n_queries, codes, n_groups);
    case 2: return all<2>(queries, n_queries, codes, n_groups);
    case 4: return all<4>(queries, n_queries, codes, n_groups);
    case 8: return all<8>(queries, n_queries, codes, n_groups);
    default: return ~uint64_t{0};
  }
}
