// The vector type of tables.hpp on x86: one register of 32 bytes.
#pragma once

#include <immintrin.h>

#include "tables.hpp"

namespace densehash {
namespace {

struct Avx2 {
  using V = __m256i;
  static constexpr int kMostFields = 11;  // 64 bits, 12 a pair: 22 KB of tables

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

  static __m128i load_16(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
  struct Slot {
    __m128i pick, multiply, mask, base;
  };
  static Slot load_slot(const FieldSlot& slot) {
    // There is no shift of 16 bits by lanes: to the left by multiplication, then back by 8.
    uint16_t multiply[8];
    for (int f = 0; f < 8; ++f) multiply[f] = static_cast<uint16_t>(256 >> slot.shift[f]);
    return {load_16(slot.pick), load_16(multiply), load_16(slot.mask), load_16(slot.base)};
  }
  static void expand_slot(const uint8_t* part, const Slot& slot, uint16_t* out) {
    const __m128i two = _mm_shuffle_epi8(load_16(part), slot.pick);
    const __m128i value =
        _mm_and_si128(_mm_srli_epi16(_mm_mullo_epi16(two, slot.multiply), 8), slot.mask);
    const __m128i offset = _mm_slli_epi16(value, __builtin_ctz(kEntry));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_add_epi16(offset, slot.base));
  }

  // Half a run, as bytes that are not zero where the entry is below its bound.
  static V half_below(const uint8_t* p, const uint8_t* bounds, int i) {
    return _mm256_subs_epu8(load(bounds + 32 * i), load(p + 32 * i));
  }
  static V half_below(const uint16_t* p, const uint16_t* bounds, int i) {
    const V low = _mm256_subs_epu16(load(bounds + 32 * i), load(p + 32 * i));
    const V high = _mm256_subs_epu16(load(bounds + 32 * i + 16), load(p + 32 * i + 16));
    // Packing saturates, so that nothing becomes zero, and works on halves of registers.
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

// The kernels of an instruction set that has AVX2 for tables, and its own ways for one query.
constexpr Kernels with_tables(const char* name, decltype(Kernels::row8) row8,
                              decltype(Kernels::row16) row16, decltype(Kernels::count8) count8) {
  constexpr Cut kCut = {64, 12};
  return {name,
          row8,
          row16,
          count8,
          gather,
          below<Avx2, uint8_t>,
          below<Avx2, uint16_t>,
          kCut,
          kCut,
          expand<Avx2>,
          lookup<Avx2, uint8_t>,
          lookup<Avx2, uint16_t>,
          find<Avx2>};
}

}  // namespace
}  // namespace densehash
