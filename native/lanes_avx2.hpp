// The vector type of lookups.hpp on x86: one register of 32 bytes.
#pragma once

#include <immintrin.h>

#include "lookups.hpp"

namespace densehash {
namespace {

struct Avx2 {
  using V = __m256i;
  static constexpr size_t kEntry = 32;
  static constexpr size_t kMostFields = 11;  // 64 bits, 12 for each pair: 22 KB of lookups

  static V load(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static V load(const uint16_t* p) { return load(reinterpret_cast<const uint8_t*>(p)); }
  static void store(uint8_t* p, V x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static V add(V x, V y) { return _mm256_add_epi8(x, y); }
  static V add_saturating(V x, V y) { return _mm256_adds_epu8(x, y); }
  static V high_half(V x) {
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(0x0f));
  }
  static V add_high_half(V sum, V x) { return add(sum, high_half(x)); }
  static V subtract_16_times(V x, V y) {
    const V times_16 = _mm256_and_si256(_mm256_slli_epi16(y, 4), _mm256_set1_epi8(-16));
    return _mm256_sub_epi8(x, times_16);
  }
  static V least(V x, V y) { return _mm256_min_epu8(x, y); }
  // Whether x is not y, or z is not w.
  static bool differ(V x, V y, V z, V w) {
    return is_any(_mm256_or_si256(_mm256_xor_si256(x, y), _mm256_xor_si256(z, w)));
  }
  static bool is_any(V x) { return !_mm256_testz_si256(x, x); }

  template <bool ADD>
  static void put(uint8_t* tile, V x) {
    store(tile, ADD ? add_saturating(x, load(tile)) : x);
  }
  template <bool ADD>
  static void put(uint16_t* tile, V x) {
    put_16<ADD>(tile, _mm256_castsi256_si128(x));
    put_16<ADD>(tile + 16, _mm256_extracti128_si256(x, 1));
  }
  template <bool ADD>
  static void put_16(uint16_t* tile, __m128i x) {
    V wide = _mm256_cvtepu8_epi16(x);
    if (ADD) wide = _mm256_add_epi16(wide, load(tile));
    store(reinterpret_cast<uint8_t*>(tile), wide);
  }

  static __m128i load_16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  struct Slot {
    __m128i pick, multiply, mask, base;
  };
  template <size_t ENTRY>
  static Slot load_slot(const FieldSlot& slot) {
    // There is no shift of 16 bits by lane: shifts left by multiplication, then right by 8.
    uint16_t multiply[8];
    for (int f = 0; f < 8; ++f) multiply[f] = static_cast<uint16_t>(256 >> slot.shift[f]);
    return {load_16(slot.pick), load_16(multiply), load_16(slot.mask), load_16(slot.base)};
  }
  template <size_t ENTRY>
  static void expand_slot(const uint8_t* part, const Slot& slot, uint16_t* out) {
    const __m128i two = _mm_shuffle_epi8(load_16(part), slot.pick);
    const __m128i value =
        _mm_and_si128(_mm_srli_epi16(_mm_mullo_epi16(two, slot.multiply), 8), slot.mask);
    const __m128i offset = _mm_slli_epi16(value, __builtin_ctz(ENTRY));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_add_epi16(offset, slot.base));
  }

  // Half a run as bytes; not zero if the entry is below its bound.
  static V half_below(const uint8_t* p, const uint8_t* bounds, int i) {
    return _mm256_subs_epu8(load(bounds + 32 * i), load(p + 32 * i));
  }
  static V half_below(const uint16_t* p, const uint16_t* bounds, int i) {
    const V low = _mm256_subs_epu16(load(bounds + 32 * i), load(p + 32 * i));
    const V high = _mm256_subs_epu16(load(bounds + 32 * i + 16), load(p + 32 * i + 16));
    // Packing saturates, so that no value becomes zero, and works on halves of registers.
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8);
  }
  template <class D>
  static bool any_of_4_below(const D* p, const D* bounds) {
    V any = _mm256_setzero_si256();
    for (int run = 0; run < 4; ++run)
      for (int i = 0; i < 2; ++i)
        any = _mm256_or_si256(any, half_below(p + static_cast<size_t>(run) * kRun, bounds, i));
    return is_any(any);
  }
  template <class D>
  static uint64_t mask_below(const D* p, const D* bounds) {
    const V zero = _mm256_setzero_si256();
    uint32_t not_below[2];
    for (int i = 0; i < 2; ++i)
      not_below[i] = static_cast<uint32_t>(
          _mm256_movemask_epi8(_mm256_cmpeq_epi8(half_below(p, bounds, i), zero)));
    return ~(static_cast<uint64_t>(not_below[1]) << 32 | not_below[0]);
  }
};

// Half a register, for half a bundle.
struct Avx2Half : Avx2 {
  using V = __m128i;
  static constexpr size_t kEntry = 16;
  static constexpr size_t kMostFields = 10;  // 64 bits, 14 for each pair: 18 KB of lookups

  static V load(const uint8_t* p) { return load_16(p); }
  static V add(V x, V y) { return _mm_add_epi8(x, y); }
  static V add_saturating(V x, V y) { return _mm_adds_epu8(x, y); }
  static V high_half(V x) { return _mm_and_si128(_mm_srli_epi16(x, 4), _mm_set1_epi8(0x0f)); }
  static V add_high_half(V sum, V x) { return add(sum, high_half(x)); }
  static V subtract_16_times(V x, V y) {
    return _mm_sub_epi8(x, _mm_and_si128(_mm_slli_epi16(y, 4), _mm_set1_epi8(-16)));
  }
  static V least(V x, V y) { return _mm_min_epu8(x, y); }
  static bool differ(V x, V y, V z, V w) {
    const V any = _mm_or_si128(_mm_xor_si128(x, y), _mm_xor_si128(z, w));
    return !_mm_testz_si128(any, any);
  }

  template <bool ADD>
  static void put(uint8_t* tile, V x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(tile), ADD ? add_saturating(x, load(tile)) : x);
  }
  template <bool ADD>
  static void put(uint16_t* tile, V x) {
    put_16<ADD>(tile, x);
  }
};

// --- sketches of signs -------------------------------------------------------------------------

// Sums in 16 bits of bytes in two lanes, one for each of two places: separately for bytes with even
// and with odd numbers.
struct SignSums {
  __m256i even = _mm256_setzero_si256(), odd = _mm256_setzero_si256();

  void add(__m256i bytes) {
    even = _mm256_add_epi16(even, _mm256_and_si256(bytes, _mm256_set1_epi16(0xff)));
    odd = _mm256_add_epi16(odd, _mm256_srli_epi16(bytes, 8));
  }
  static __m128i both_lanes(__m256i x) {
    return _mm_add_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  }
  // The sums of 16 entries, in order.
  __m256i in_order() const {
    const __m128i evens = both_lanes(even), odds = both_lanes(odd);
    return _mm256_set_m128i(_mm_unpackhi_epi16(evens, odds), _mm_unpacklo_epi16(evens, odds));
  }
};

// Adds the lookups for some pairs of places; the sums of four pairs, each up to 63, fit a byte. The
// loop has a known length, so that the compiler unrolls it.
template <size_t PAIRS>
inline void sum_pairs(const uint8_t* halves, const uint8_t* lookups, SignSums& low,
                      SignSums& high) {
  static_assert(PAIRS <= 4);
  const __m256i low_half = _mm256_set1_epi8(15);
  __m256i x = _mm256_setzero_si256(), y = x;
#pragma GCC unroll 4
  for (size_t p = 0; p < PAIRS; ++p) {
    const __m256i both = Avx2::load(halves + 32 * p), lookup = Avx2::load(lookups + 32 * p);
    const __m256i high_halves = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half);
    x = _mm256_add_epi8(x, _mm256_shuffle_epi8(lookup, _mm256_and_si256(both, low_half)));
    y = _mm256_add_epi8(y, _mm256_shuffle_epi8(lookup, high_halves));
  }
  low.add(x);
  high.add(y);
}

// Which of 16 entries are wanted: words with all bits set.
inline __m256i wanted_16(__m256i sums, const uint8_t* alphas, const uint8_t* betas,
                         __m256i times_alpha, __m256i times_beta, __m256i offset) {
  const __m256i limit =
      _mm256_adds_epi16(_mm256_adds_epi16(_mm256_mulhrs_epi16(Avx2::load(alphas), times_alpha),
                                          _mm256_mulhrs_epi16(Avx2::load(betas), times_beta)),
                        offset);
  return _mm256_cmpgt_epi16(sums, limit);
}

inline size_t signs_avx2(const uint8_t* blocks, size_t bits, size_t count, const uint8_t* lookups,
                         SignBound bound, uint16_t* sums, SignRun* runs) {
  const __m256i times_alpha = _mm256_set1_epi16(bound.times_alpha);
  const __m256i times_beta = _mm256_set1_epi16(bound.times_beta);
  const __m256i offset = _mm256_set1_epi16(bound.offset);
  const size_t pairs = bits / 8, bytes = block_bytes(bits);
  size_t found = 0;
  for (size_t block = 0; block < count; ++block, blocks += bytes) {
    SignSums low, high;
    size_t pair = 0;
    for (; pair + 4 <= pairs; pair += 4)
      sum_pairs<4>(blocks + 32 * pair, lookups + 32 * pair, low, high);
    for (; pair < pairs; ++pair) sum_pairs<1>(blocks + 32 * pair, lookups + 32 * pair, low, high);
    const __m256i of_low = low.in_order(), of_high = high.in_order();
    const uint8_t* alphas = blocks + 32 * pairs;
    const uint8_t* betas = alphas + sizeof(BlockFactors::alphas);
    const __m256i first = wanted_16(of_low, alphas, betas, times_alpha, times_beta, offset);
    const __m256i second =
        wanted_16(of_high, alphas + 32, betas + 32, times_alpha, times_beta, offset);
    // Packing works on halves of registers.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xd8);
    const uint32_t mask = static_cast<uint32_t>(_mm256_movemask_epi8(packed));
    if (mask == 0) continue;
    uint8_t* to = reinterpret_cast<uint8_t*>(sums + found * kBlock);
    Avx2::store(to, of_low);
    Avx2::store(to + 32, of_high);
    runs[found++] = {static_cast<uint32_t>(block), mask};
  }
  return found;
}

// The functions that all sets with AVX2 share.
inline void use_lanes(Kernels& kernels) {
  kernels.gather = gather;
  kernels.below8 = below<Avx2, uint8_t>;
  kernels.below16 = below<Avx2, uint16_t>;
  kernels.whole = bundle_kernels<Avx2>({64, 12}, {64, 12});
  kernels.half = bundle_kernels<Avx2Half>({64, 14}, {64, 14});
  kernels.signs = signs_of_each<signs_avx2>;
}

}  // namespace
}  // namespace densehash
