// AVX-512 with VPOPCNTDQ. The lookups are those of AVX2: wider entries would not fit the
// first-level cache.
#include "lanes_avx2.hpp"

namespace densehash {
namespace {

inline void store_distances(__m512i eight, uint8_t* out) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm512_cvtepi64_epi8(eight));
}
inline void store_distances(__m512i eight, uint16_t* out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi64_epi16(eight));
}

// The sums of neighbouring numbers in x, then in y.
inline __m512i add_neighbours(__m512i x, __m512i y) {
  const __m512i even = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_add_epi64(_mm512_permutex2var_epi64(x, even, y),
                          _mm512_permutex2var_epi64(x, odd, y));
}

// Codes of 8, 16, 32 or 64 bytes, eight at a time, in as many vectors as a code has words.
template <int WORDS, class D>
size_t row_words(const uint8_t* query, const uint8_t* codes, size_t count, D* out) {
  uint8_t repeated[64];
  for (size_t i = 0; i < 64; ++i) repeated[i] = query[i % (8 * WORDS)];
  const __m512i q = _mm512_loadu_si512(repeated);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m512i v[WORDS];
    for (size_t j = 0; j < WORDS; ++j)
      v[j] = _mm512_popcnt_epi64(
          _mm512_xor_si512(_mm512_loadu_si512(codes + i * 8 * WORDS + 64 * j), q));
    for (int left = WORDS; left > 1; left /= 2)
      for (int j = 0; j < left / 2; ++j) v[j] = add_neighbours(v[2 * j], v[2 * j + 1]);
    store_distances(v[0], out + i);
  }
  return i;
}

// Codes of 4 bytes, 16 at a time, and of 2 bytes, 32 at a time.
size_t row_4(const uint8_t* query, const uint8_t* codes, size_t count, uint8_t* out) {
  int32_t word;
  std::memcpy(&word, query, sizeof word);
  const __m512i q = _mm512_set1_epi32(word);
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i x = _mm512_xor_si512(_mm512_loadu_si512(codes + 4 * i), q);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm512_cvtepi32_epi8(_mm512_popcnt_epi32(x)));
  }
  return i;
}

size_t row_2(const uint8_t* query, const uint8_t* codes, size_t count, uint8_t* out) {
  int16_t word;
  std::memcpy(&word, query, sizeof word);
  const __m512i q = _mm512_set1_epi16(word), low = _mm512_set1_epi32(0xffff);
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512i x = _mm512_xor_si512(_mm512_loadu_si512(codes + 2 * i), q);
    const __m512i even = _mm512_popcnt_epi32(_mm512_and_si512(x, low));
    const __m512i odd = _mm512_popcnt_epi32(_mm512_srli_epi32(x, 16));
    const __m512i both = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
    Avx2::store(out + i, _mm512_cvtepi16_epi8(both));
  }
  return i;
}

template <class D>
void row_avx512(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count, D* out) {
  size_t done = 0;
  if constexpr (sizeof(D) == 1) {
    if (bytes == 2) done = row_2(query, codes, count, out);
    if (bytes == 4) done = row_4(query, codes, count, out);
  }
  if (bytes == 8) done = row_words<1>(query, codes, count, out);
  if (bytes == 16) done = row_words<2>(query, codes, count, out);
  if (bytes == 32) done = row_words<4>(query, codes, count, out);
  if (bytes == 64) done = row_words<8>(query, codes, count, out);
  row(query, codes + done * bytes, bytes, count - done, out + done);
}

}  // namespace

void use_avx512(Kernels& kernels) {
  use_lanes(kernels);  // compiled for more registers
  kernels.half = {};   // on a Xeon, they took 1.1 to 1.6 times as long as rows
  kernels.row8 = row_avx512<uint8_t>;
  kernels.row16 = row_avx512<uint16_t>;
  kernels.count8 = count_row<row_avx512<uint8_t>>;
}

}  // namespace densehash
