// Computes distances of many queries to many codes, by lookups.
//
// A code is cut into fields of six to eight bits. For a bundle of queries and every value that a
// field can have, a lookup holds the field's distances to all queries of the bundle: one byte is
// for two queries, one in its low and one in its high four bits, and one vector (`Lanes`) for a
// whole bundle or half of one. So a code costs a load and an add for each field and *bundle*, while
// xor and popcount would cost three instructions for each word and *query*.
//
// Two fields have at most 15 bits together, so that their sum fits four bits. For more fields,
// `sum` adds the bytes as they are (low + 16 * high, modulo 256) and `high` adds the high halves,
// so low = sum - 16 * high.
//
// In an unnamed namespace for the reason given in kernels.hpp. `Lanes` is the vector type of the
// including file, with its few operations.
#pragma once

#include "rows.hpp"

namespace densehash {
namespace {

template <class Lanes>
constexpr size_t kQueriesOf = 2 * Lanes::kEntry;

// The distances of a code to a bundle: to the queries in the low halves, and to those in the high.
template <class V>
struct Halves {
  V low, high;
};

// Inlined, so that loops in which `fields` is a constant are unrolled.
template <class Lanes>
ALWAYS_INLINE Halves<typename Lanes::V> sum_fields(const uint16_t* offsets, size_t fields,
                                                   const uint8_t* lookups) {
  using V = typename Lanes::V;
  V sum = Lanes::load(lookups + offsets[0]);
  if (fields > 1) sum = Lanes::add(sum, Lanes::load(lookups + offsets[1]));
  V high = Lanes::high_half(sum);
#pragma GCC unroll 12
  for (size_t f = 2; f + 1 < fields; f += 2) {
    const V pair =
        Lanes::add(Lanes::load(lookups + offsets[f]), Lanes::load(lookups + offsets[f + 1]));
    sum = Lanes::add(sum, pair);
    high = Lanes::add_high_half(high, pair);
  }
  if (fields > 1 && fields % 2 == 1) {
    const V last = Lanes::load(lookups + offsets[fields - 1]);
    sum = Lanes::add(sum, last);
    high = Lanes::add_high_half(high, last);
  }
  return {Lanes::subtract_16_times(sum, high), high};
}

template <class Lanes, bool ADD, class D>
ALWAYS_INLINE void lookup_code(const uint16_t* offsets, size_t fields, const uint8_t* lookups,
                               D* tile) {
  const auto distances = sum_fields<Lanes>(offsets, fields, lookups);
  Lanes::template put<ADD>(tile, distances.low);
  Lanes::template put<ADD>(tile + Lanes::kEntry, distances.high);
}

// FIELDS: their number, or 0 if it is known at run time only. Not inlined: with several numbers of
// fields in one function, the compiler allocates registers badly.
template <class Lanes, size_t FIELDS, bool ADD, class D>
__attribute__((noinline)) void lookup_fields(const uint16_t* offsets, size_t fields, size_t count,
                                             const uint8_t* lookups, D* tile) {
  if (FIELDS != 0) fields = FIELDS;
  for (size_t i = 0; i < count; ++i)
    lookup_code<Lanes, ADD>(offsets + i * fields, fields, lookups, tile + i * kQueriesOf<Lanes>);
}

// Looks up codes [begin, end), where `begin` is the start of a run, and notes the runs that have an
// entry below its bound.
template <class Lanes, size_t FIELDS, bool ADD>
__attribute__((noinline)) size_t find_slowly(const uint16_t* offsets, size_t begin, size_t end,
                                             const uint8_t* lookups, uint8_t* tile,
                                             const uint8_t* bounds, Run* runs) {
  constexpr size_t kCodes = kRun / kQueriesOf<Lanes>;  // in a run
  size_t found = 0;
  for (size_t i = begin; i < end; i += kCodes) {
    for (size_t j = i; j < i + kCodes && j < end; ++j)
      lookup_code<Lanes, ADD>(offsets + j * FIELDS, FIELDS, lookups,
                              tile + j * kQueriesOf<Lanes>);
    const uint64_t mask = Lanes::mask_below(tile + i * kQueriesOf<Lanes>, bounds);
    if (mask != 0) runs[found++] = {static_cast<uint32_t>(i / kCodes), mask};
  }
  return found;
}

// Few codes are below the bounds, so four are tested at once, and looked up again if one is.
template <class Lanes, size_t FIELDS, bool ADD>
__attribute__((noinline)) size_t find_fields(const uint16_t* offsets, size_t count,
                                             const uint8_t* lookups, uint8_t* tile,
                                             const uint8_t* bounds, Run* runs) {
  using V = typename Lanes::V;
  const V low_bounds = Lanes::load(bounds), high_bounds = Lanes::load(bounds + Lanes::kEntry);
  size_t found = 0, i = 0;
  for (; i + 4 <= count; i += 4) {
    V low = low_bounds, high = high_bounds;  // the least of the four and the bounds
#pragma GCC unroll 4
    for (size_t j = i; j < i + 4; ++j) {
      auto distances = sum_fields<Lanes>(offsets + j * FIELDS, FIELDS, lookups);
      if (ADD) {
        const uint8_t* before = tile + j * kQueriesOf<Lanes>;
        distances.low = Lanes::add_saturating(distances.low, Lanes::load(before));
        distances.high =
            Lanes::add_saturating(distances.high, Lanes::load(before + Lanes::kEntry));
      }
      low = Lanes::least(low, distances.low);
      high = Lanes::least(high, distances.high);
    }
    if (__builtin_expect(Lanes::differ(low, low_bounds, high, high_bounds), 0))
      found +=
          find_slowly<Lanes, FIELDS, ADD>(offsets, i, i + 4, lookups, tile, bounds, runs + found);
  }
  return found +
         find_slowly<Lanes, FIELDS, ADD>(offsets, i, count, lookups, tile, bounds, runs + found);
}

template <class Lanes, bool ADD, class D>
void lookup_some(const uint16_t* offsets, size_t fields, size_t count, const uint8_t* lookups,
                 D* tile) {
  // Whole parts of long codes have so many; other numbers are rare.
  constexpr size_t kMost = Lanes::kMostFields;
  const auto look = fields == kMost ? lookup_fields<Lanes, kMost, ADD, D>
                                    : lookup_fields<Lanes, 0, ADD, D>;
  look(offsets, fields, count, lookups, tile);
}

template <class Lanes, class D>
void lookup(const uint16_t* offsets, size_t fields, size_t count, const uint8_t* lookups, bool add,
            D* tile) {
  const auto look = add ? lookup_some<Lanes, true, D> : lookup_some<Lanes, false, D>;
  look(offsets, fields, count, lookups, tile);
}

// Chooses the loop that was compiled for the number of fields in a part.
template <class Lanes, size_t FIELDS>
size_t find_from(const uint16_t* offsets, size_t fields, size_t count, const uint8_t* lookups,
                 bool add, uint8_t* tile, const uint8_t* bounds, Run* runs) {
  if constexpr (FIELDS == 0) {
    return 0;
  } else {
    if (fields != FIELDS)
      return find_from<Lanes, FIELDS - 1>(offsets, fields, count, lookups, add, tile, bounds,
                                          runs);
    if (add) return find_fields<Lanes, FIELDS, true>(offsets, count, lookups, tile, bounds, runs);
    return find_fields<Lanes, FIELDS, false>(offsets, count, lookups, tile, bounds, runs);
  }
}

template <class Lanes>
size_t find(const uint16_t* offsets, size_t fields, size_t count, const uint8_t* lookups, bool add,
            uint8_t* tile, const uint8_t* bounds, Run* runs) {
  return find_from<Lanes, Lanes::kMostFields>(offsets, fields, count, lookups, add, tile, bounds,
                                              runs);
}

template <class Lanes, size_t SLOTS>
void expand_slots(const uint8_t* codes, size_t bytes, size_t first_byte, size_t part_bytes,
                  size_t count, const FieldSlot* slots, size_t fields, uint16_t* offsets) {
  typename Lanes::Slot cut[SLOTS];
  for (size_t s = 0; s < SLOTS; ++s) cut[s] = Lanes::template load_slot<Lanes::kEntry>(slots[s]);
  const uint8_t* end = codes + bytes * count;
  for (size_t i = 0; i < count; ++i, offsets += fields) {
    const uint8_t* part = codes + i * bytes + first_byte;
    uint8_t copy[16] = {};
    if (part + sizeof copy > end) {  // the vector load would read past the last code
      std::memcpy(copy, part, part_bytes);
      part = copy;
    }
    // The last slot may write over the offsets of the next code, which are written later.
    for (size_t s = 0; s < SLOTS; ++s)
      Lanes::template expand_slot<Lanes::kEntry>(part, cut[s], offsets + 8 * s);
  }
}

template <class Lanes>
void expand(const uint8_t* codes, size_t bytes, size_t first_byte, size_t part_bytes, size_t count,
            const FieldSlot* slots, size_t fields, uint16_t* offsets) {
  static_assert(kMaxSlots == 3, "one case for each");
  const auto expand_all = fields <= 8    ? expand_slots<Lanes, 1>
                          : fields <= 16 ? expand_slots<Lanes, 2>
                                         : expand_slots<Lanes, 3>;
  expand_all(codes, bytes, first_byte, part_bytes, count, slots, fields, offsets);
}

template <class Lanes>
constexpr BundleKernels bundle_kernels(Cut short_codes, Cut long_codes) {
  return {Lanes::kEntry,           short_codes, long_codes, expand<Lanes>, lookup<Lanes, uint8_t>,
          lookup<Lanes, uint16_t>, find<Lanes>};
}

// As in find_fields: four runs are tested at once before each is.
template <class Lanes, class D>
size_t below(const D* tile, size_t n_runs, const D* bounds, Run* runs) {
  size_t found = 0;
  const auto look = [&](size_t r) {
    const uint64_t mask = Lanes::mask_below(tile + r * kRun, bounds);
    if (mask != 0) runs[found++] = {static_cast<uint32_t>(r), mask};
  };
  size_t r = 0;
  for (; r + 4 <= n_runs; r += 4)
    if (__builtin_expect(Lanes::any_of_4_below(tile + r * kRun, bounds), 0))
      for (size_t i = r; i < r + 4; ++i) look(i);
  for (; r < n_runs; ++r) look(r);
  return found;
}

}  // namespace
}  // namespace densehash
