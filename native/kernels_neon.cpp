// ARM NEON, which every 64-bit ARM has.
#include <arm_neon.h>

#include "lookups.hpp"

namespace densehash {
namespace {

// 16 bytes: one register, for half a bundle.
struct NeonHalf {
  using V = uint8x16_t;
  static constexpr size_t kEntry = 16;
  static constexpr size_t kMostFields = 18;  // 128 bits, 15 for each pair

  static V load(const uint8_t* p) { return vld1q_u8(p); }
  static V add(V x, V y) { return vaddq_u8(x, y); }
  static V add_saturating(V x, V y) { return vqaddq_u8(x, y); }
  static V high_half(V x) { return vshrq_n_u8(x, 4); }
  static V add_high_half(V sum, V x) { return vsraq_n_u8(sum, x, 4); }
  static V subtract_16_times(V x, V y) { return vsubq_u8(x, vshlq_n_u8(y, 4)); }
  static V least(V x, V y) { return vminq_u8(x, y); }
  static V difference(V x, V y) { return veorq_u8(x, y); }
  // Whether x is not y, or z is not w.
  static bool differ(V x, V y, V z, V w) {
    return is_any(vorrq_u8(difference(x, y), difference(z, w)));
  }
  static bool is_any(uint8x16_t x) { return vmaxvq_u32(vreinterpretq_u32_u8(x)) != 0; }

  template <bool ADD>
  static void put(uint8_t* tile, V x) {
    vst1q_u8(tile, ADD ? add_saturating(x, load(tile)) : x);
  }
  template <bool ADD>
  static void put(uint16_t* tile, V x) {
    uint16x8_t low = vmovl_u8(vget_low_u8(x)), high = vmovl_high_u8(x);
    if (ADD) low = vaddq_u16(low, vld1q_u16(tile)), high = vaddq_u16(high, vld1q_u16(tile + 8));
    vst1q_u16(tile, low);
    vst1q_u16(tile + 8, high);
  }

  struct Slot {
    uint8x16_t pick;
    int16x8_t shift;  // to the left; to the right if negative
    uint16x8_t mask, base;
  };
  template <size_t ENTRY>
  static Slot load_slot(const FieldSlot& slot) {
    constexpr int kShift = __builtin_ctz(ENTRY);
    const int16x8_t right = vreinterpretq_s16_u16(vld1q_u16(slot.shift));
    return {vld1q_u8(slot.pick), vsubq_s16(vdupq_n_s16(kShift), right),
            vshlq_n_u16(vld1q_u16(slot.mask), kShift), vld1q_u16(slot.base)};
  }
  template <size_t ENTRY>
  static void expand_slot(const uint8_t* part, const Slot& slot, uint16_t* out) {
    const uint16x8_t two = vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(part), slot.pick));
    vst1q_u16(out, vaddq_u16(vandq_u16(vshlq_u16(two, slot.shift), slot.mask), slot.base));
  }

  // A quarter of a run as bytes; all bits are set if the entry is below its bound.
  static uint8x16_t quarter_below(const uint8_t* p, const uint8_t* bounds, int i) {
    return vcltq_u8(vld1q_u8(p + 16 * i), vld1q_u8(bounds + 16 * i));
  }
  static uint8x16_t quarter_below(const uint16_t* p, const uint16_t* bounds, int i) {
    const uint16x8_t low = vcltq_u16(vld1q_u16(p + 16 * i), vld1q_u16(bounds + 16 * i));
    const uint16x8_t high = vcltq_u16(vld1q_u16(p + 16 * i + 8), vld1q_u16(bounds + 16 * i + 8));
    return vcombine_u8(vmovn_u16(low), vmovn_u16(high));
  }
  template <class D>
  static bool any_of_4_below(const D* p, const D* bounds) {
    uint8x16_t any = vdupq_n_u8(0);
    for (int run = 0; run < 4; ++run)
      for (int i = 0; i < 4; ++i) any = vorrq_u8(any, quarter_below(p + run * kRun, bounds, i));
    return is_any(any);
  }
  template <class D>
  static uint64_t mask_below(const D* p, const D* bounds) {
    const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    uint8x16_t v[4];
    for (int i = 0; i < 4; ++i) v[i] = vandq_u8(quarter_below(p, bounds, i), bits);
    const uint8x16_t sum = vpaddq_u8(vpaddq_u8(v[0], v[1]), vpaddq_u8(v[2], v[3]));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
  }
};

// 32 bytes: two registers, which one instruction loads.
struct Neon : NeonHalf {
  using Half = NeonHalf;
  struct V {
    uint8x16_t a, b;
  };
  static constexpr size_t kEntry = 32;
  static constexpr size_t kMostFields = 20;  // 128 bits, 13 for each pair

  static V load(const uint8_t* p) {
    asm("" : "+r"(p));  // one address for both, which saves two steps
    return {vld1q_u8(p), vld1q_u8(p + 16)};
  }
  static V add(V x, V y) { return {Half::add(x.a, y.a), Half::add(x.b, y.b)}; }
  static V add_saturating(V x, V y) {
    return {Half::add_saturating(x.a, y.a), Half::add_saturating(x.b, y.b)};
  }
  static V high_half(V x) { return {Half::high_half(x.a), Half::high_half(x.b)}; }
  static V add_high_half(V sum, V x) {
    return {Half::add_high_half(sum.a, x.a), Half::add_high_half(sum.b, x.b)};
  }
  static V subtract_16_times(V x, V y) {
    return {Half::subtract_16_times(x.a, y.a), Half::subtract_16_times(x.b, y.b)};
  }
  static V least(V x, V y) { return {Half::least(x.a, y.a), Half::least(x.b, y.b)}; }
  static bool differ(V x, V y, V z, V w) {
    return is_any(vorrq_u8(vorrq_u8(difference(x.a, y.a), difference(x.b, y.b)),
                           vorrq_u8(difference(z.a, w.a), difference(z.b, w.b))));
  }
  template <bool ADD, class D>
  static void put(D* tile, V x) {
    Half::put<ADD>(tile, x.a);
    Half::put<ADD>(tile + 16, x.b);
  }
};

// --- one query ---------------------------------------------------------------------------------

// What the loops below do with the distances of 16 codes, i to i + 15.
struct Write8 {
  static constexpr bool kWide = false;
  uint8_t* out;

  ALWAYS_INLINE void operator()(size_t i, uint8x16_t distances) { vst1q_u8(out + i, distances); }
  void end() {}
};

struct Write16 {
  static constexpr bool kWide = true;  // distances may not fit a byte
  uint16_t* out;

  ALWAYS_INLINE void operator()(size_t i, uint16x8_t low, uint16x8_t high) {
    vst1q_u16(out + i, low);
    vst1q_u16(out + i + 8, high);
  }
  ALWAYS_INLINE void operator()(size_t i, uint8x16_t distances) {
    (*this)(i, vmovl_u8(vget_low_u8(distances)), vmovl_high_u8(distances));
  }
  void end() {}
};

// Counting is limited by loads and stores, comparing by arithmetic, so both at once take less time
// than one after the other. 16 distances are counted while the next 16 are computed, because the
// loads for counting cannot start before the distances are known.
struct WriteAndCount {
  static constexpr bool kWide = false;
  uint8_t* out;
  uint32_t* pairs;
  uint8x16_t waiting = vdupq_n_u8(0);

  ALWAYS_INLINE void operator()(size_t i, uint8x16_t distances) {
    vst1q_u8(out + i, distances);
    count();
    waiting = distances;
  }
  ALWAYS_INLINE void count() {
    count_pairs(vgetq_lane_u64(vreinterpretq_u64_u8(waiting), 0), pairs);
    count_pairs(vgetq_lane_u64(vreinterpretq_u64_u8(waiting), 1), pairs);
  }
  ALWAYS_INLINE void end() {
    count();
    pairs[0] -= 8;  // the zeros that were there before the first distances
  }
};

// The sums of the bytes of each of N vectors, added in pairs until one vector holds all sums.
template <int N>
ALWAYS_INLINE uint8x16_t sums(uint8x16_t* v) {
  for (int left = N; left > 1; left /= 2)
    for (int j = 0; j < left / 2; ++j) v[j] = vpaddq_u8(v[2 * j], v[2 * j + 1]);
  return v[0];
}

// The loops process 16 codes at a time and return how many they have done; row_any does the rest.
// They take `write` by value, so that it stays in registers.

// Codes of 1, 2, 4 or 8 bytes: 16 of them are BYTES vectors.
template <int BYTES, class Write>
size_t row_short(const uint8_t* query, const uint8_t* codes, size_t count, Write write) {
  uint8_t repeated[16];
  for (int i = 0; i < 16; ++i) repeated[i] = query[i % BYTES];
  const uint8x16_t q = vld1q_u8(repeated);
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    uint8x16_t v[BYTES];
    for (int j = 0; j < BYTES; ++j)
      v[j] = vcntq_u8(veorq_u8(vld1q_u8(codes + i * BYTES + 16 * j), q));
    write(i, sums<BYTES>(v));
  }
  write.end();
  return i;
}

// Codes of 5 to 7 bytes, read as 8.
template <class Write>
size_t row_below_8(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count,
                   Write write) {
  uint8_t padded[8] = {}, keep[8] = {};
  for (size_t j = 0; j < bytes; ++j) padded[j] = query[j], keep[j] = 0xff;
  const uint8x16_t q = vcombine_u8(vld1_u8(padded), vld1_u8(padded));
  const uint8x16_t mask = vcombine_u8(vld1_u8(keep), vld1_u8(keep));
  size_t i = 0;
  for (; i + 16 <= count && (i + 15) * bytes + 8 <= count * bytes; i += 16) {
    const uint8_t* p = codes + i * bytes;
    uint8x16_t v[8];
    for (int j = 0; j < 8; ++j, p += 2 * bytes) {
      const uint8x16_t two = vcombine_u8(vld1_u8(p), vld1_u8(p + bytes));
      v[j] = vcntq_u8(vandq_u8(veorq_u8(two, q), mask));
    }
    write(i, sums<8>(v));
  }
  write.end();
  return i;
}

// How far ahead codes are fetched, in bytes: 5 to 10% faster with one query on a Neoverse N1. Codes
// of four vectors, which are limited by memory alone, would be slower.
constexpr size_t kAhead = 768;

// Codes of 9 to 64 bytes, read as VECTORS times 16; MASKED if that is more than they have.
template <int VECTORS, bool MASKED, class Write>
size_t row_long(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count,
                Write write) {
  if (!MASKED) bytes = 16 * VECTORS;  // the compiler then loads two vectors at once
  uint8_t padded[16 * VECTORS] = {}, keep[16 * VECTORS] = {};
  for (size_t j = 0; j < bytes; ++j) padded[j] = query[j], keep[j] = 0xff;
  uint8x16_t q[VECTORS];
  for (int j = 0; j < VECTORS; ++j) q[j] = vld1q_u8(padded + 16 * j);
  const uint8x16_t mask = vld1q_u8(keep + 16 * (VECTORS - 1));
  size_t i = 0;
  for (; i + 16 <= count && (i + 15) * bytes + 16 * VECTORS <= count * bytes; i += 16) {
    const uint8_t* p = codes + i * bytes;
    uint8x16_t v[16];
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c, p += bytes) {
      if (VECTORS < 4 && c * VECTORS % 4 == 0) __builtin_prefetch(p + kAhead);
      uint8x16_t last = veorq_u8(vld1q_u8(p + 16 * (VECTORS - 1)), q[VECTORS - 1]);
      if (MASKED) last = vandq_u8(last, mask);
      v[c] = vcntq_u8(last);
      for (int j = 0; j + 1 < VECTORS; ++j)
        v[c] = vaddq_u8(v[c], vcntq_u8(veorq_u8(vld1q_u8(p + 16 * j), q[j])));
    }
    if constexpr (Write::kWide) {
      // Four times 32 still fits a byte, eight times does not.
      uint16x8_t w[4];
      for (int j = 0; j < 4; ++j)
        w[j] = vpaddlq_u8(
            vpaddq_u8(vpaddq_u8(v[4 * j], v[4 * j + 1]), vpaddq_u8(v[4 * j + 2], v[4 * j + 3])));
      write(i, vpaddq_u16(w[0], w[1]), vpaddq_u16(w[2], w[3]));
    } else {
      write(i, sums<16>(v));
    }
  }
  write.end();
  return i;
}

template <class Write>
size_t row_16s(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count,
               Write write) {
  switch (bytes) {
    case 1: return row_short<1>(query, codes, count, write);
    case 2: return row_short<2>(query, codes, count, write);
    case 4: return row_short<4>(query, codes, count, write);
    case 8: return row_short<8>(query, codes, count, write);
    case 16: return row_long<1, false>(query, codes, bytes, count, write);
    case 32: return row_long<2, false>(query, codes, bytes, count, write);
    case 48: return row_long<3, false>(query, codes, bytes, count, write);
    case 64: return row_long<4, false>(query, codes, bytes, count, write);
  }
  if (bytes > 4 && bytes < 8) return row_below_8(query, codes, bytes, count, write);
  if (bytes > 8 && bytes < 16) return row_long<1, true>(query, codes, bytes, count, write);
  if (bytes > 16 && bytes < 32) return row_long<2, true>(query, codes, bytes, count, write);
  if (bytes > 32 && bytes < 48) return row_long<3, true>(query, codes, bytes, count, write);
  if (bytes > 48 && bytes < 64) return row_long<4, true>(query, codes, bytes, count, write);
  return 0;
}

// Any other width, one code at a time.
template <class D>
void row_any(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count, D* out) {
  for (size_t i = 0; i < count; ++i, codes += bytes) {
    unsigned sum = 0;
    size_t b = 0;
    while (b + 16 <= bytes) {
      uint8x16_t counts = vdupq_n_u8(0);  // 16 times 8 fits a byte
      for (int n = 0; n < 16 && b + 16 <= bytes; ++n, b += 16)
        counts = vaddq_u8(counts, vcntq_u8(veorq_u8(vld1q_u8(codes + b), vld1q_u8(query + b))));
      sum += vaddlvq_u8(counts);
    }
    out[i] = static_cast<D>(sum + distance<0>(query + b, codes + b, bytes - b));
  }
}

template <class Write, class D>
void row_neon(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count, D* out) {
  const size_t n = row_16s(query, codes, bytes, count, Write{out});
  row_any(query, codes + n * bytes, bytes, count - n, out + n);
}

void count_neon(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count,
                uint8_t* out, uint32_t* pairs) {
  const size_t n = row_16s(query, codes, bytes, count, WriteAndCount{out, pairs});
  row_any(query, codes + n * bytes, bytes, count - n, out + n);
  count_pairs(out + n, count - n, pairs);
}

// --- sketches of signs -------------------------------------------------------------------------

// The sums of PLACES lookups of QUERIES queries in bytes: for the entries in the low halves, and
// for those in the high halves.
template <int PLACES, int QUERIES>
ALWAYS_INLINE void sum_places(const uint8_t* halves, const uint8_t* const* lookups, size_t first,
                              uint16x8_t (*sums)[4]) {
  const uint8x16_t low_half = vdupq_n_u8(15);
  uint8x16_t low[QUERIES], high[QUERIES];
#pragma GCC unroll 4
  for (int p = 0; p < PLACES; ++p) {
    const uint8x16_t both = vld1q_u8(halves + 16 * p);
    const uint8x16_t lows = vandq_u8(both, low_half), highs = vshrq_n_u8(both, 4);
#pragma GCC unroll 3
    for (int q = 0; q < QUERIES; ++q) {
      const uint8x16_t lookup = vld1q_u8(lookups[q] + first + 16 * p);
      const uint8x16_t x = vqtbl1q_u8(lookup, lows), y = vqtbl1q_u8(lookup, highs);
      low[q] = p == 0 ? x : vaddq_u8(low[q], x);
      high[q] = p == 0 ? y : vaddq_u8(high[q], y);
    }
  }
#pragma GCC unroll 3
  for (int q = 0; q < QUERIES; ++q) {
    sums[q][0] = vaddw_u8(sums[q][0], vget_low_u8(low[q]));
    sums[q][1] = vaddw_high_u8(sums[q][1], low[q]);
    sums[q][2] = vaddw_u8(sums[q][2], vget_low_u8(high[q]));
    sums[q][3] = vaddw_high_u8(sums[q][3], high[q]);
  }
}

template <int QUERIES>
void signs_neon(const uint8_t* blocks, size_t bits, size_t count, const SignQuery* queries) {
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const size_t places = bits / 4, bytes = block_bytes(bits);
  const uint8_t* lookups[QUERIES];
  size_t found[QUERIES] = {};
  for (int q = 0; q < QUERIES; ++q) lookups[q] = queries[q].lookup;
  for (size_t block = 0; block < count; ++block, blocks += bytes) {
    uint16x8_t of_block[QUERIES][4];
#pragma GCC unroll 3
    for (int q = 0; q < QUERIES; ++q)
      for (int i = 0; i < 4; ++i) of_block[q][i] = vdupq_n_u16(0);
    size_t place = 0;
    for (; place + 4 <= places; place += 4)
      sum_places<4, QUERIES>(blocks + 16 * place, lookups, 16 * place, of_block);
    if (place < places) sum_places<2, QUERIES>(blocks + 16 * place, lookups, 16 * place, of_block);
    const int16_t* alphas = reinterpret_cast<const int16_t*>(blocks + 16 * places);
#pragma GCC unroll 3
    for (int q = 0; q < QUERIES; ++q) {
      const SignBound bound = queries[q].bound;
      uint16x8_t above[4];
      for (int i = 0; i < 4; ++i) {
        const int16x8_t limit = vqaddq_s16(
            vqaddq_s16(vqrdmulhq_n_s16(vld1q_s16(alphas + 8 * i), bound.times_alpha),
                       vqrdmulhq_n_s16(vld1q_s16(alphas + kBlock + 8 * i), bound.times_beta)),
            vdupq_n_s16(bound.offset));
        above[i] = vcgtq_s16(vreinterpretq_s16_u16(of_block[q][i]), limit);
      }
      // Few blocks have wanted entries.
      const uint16x8_t any =
          vorrq_u16(vorrq_u16(above[0], above[1]), vorrq_u16(above[2], above[3]));
      if (vget_lane_u64(vreinterpret_u64_u8(vmovn_u16(any)), 0) == 0) continue;
      const uint8x16_t low =
          vuzp1q_u8(vreinterpretq_u8_u16(above[0]), vreinterpretq_u8_u16(above[1]));
      const uint8x16_t high =
          vuzp1q_u8(vreinterpretq_u8_u16(above[2]), vreinterpretq_u8_u16(above[3]));
      uint8x16_t bits_of = vpaddq_u8(vandq_u8(low, bit), vandq_u8(high, bit));
      bits_of = vpaddq_u8(bits_of, bits_of);
      bits_of = vpaddq_u8(bits_of, bits_of);
      const uint32_t mask = vgetq_lane_u32(vreinterpretq_u32_u8(bits_of), 0);
      for (int i = 0; i < 4; ++i)
        vst1q_u16(queries[q].sums + found[q] * kBlock + 8 * i, of_block[q][i]);
      queries[q].runs[found[q]++] = {static_cast<uint32_t>(block), mask};
    }
  }
  for (int q = 0; q < QUERIES; ++q) *queries[q].found = found[q];
}

void signs_of_queries(const uint8_t* blocks, size_t bits, size_t count, const SignQuery* queries,
                      size_t n_queries) {
  static_assert(kSignQueries == 3);
  if (n_queries == 1) return signs_neon<1>(blocks, bits, count, queries);
  if (n_queries == 2) return signs_neon<2>(blocks, bits, count, queries);
  signs_neon<3>(blocks, bits, count, queries);
}

}  // namespace

void use_neon(Kernels& kernels) {
  kernels.row8 = row_neon<Write8, uint8_t>;
  kernels.row16 = row_neon<Write16, uint16_t>;
  kernels.count8 = count_neon;
  kernels.gather = gather;
  kernels.below8 = below<Neon, uint8_t>;
  kernels.below16 = below<Neon, uint16_t>;
  kernels.whole = bundle_kernels<Neon>({64, 15}, {128, 13});
  kernels.half = bundle_kernels<NeonHalf>({64, 15}, {128, 15});
  kernels.signs = signs_of_queries;
}

}  // namespace densehash
