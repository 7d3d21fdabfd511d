// Pairs as one number, which is fast to compare and sort: by the first part, then by position.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace densehash {

template <unsigned POSITION_BITS>
struct Key {
  static uint64_t make(uint64_t first, uint64_t position) {
    return first << POSITION_BITS | position;
  }
  static size_t first(uint64_t key) { return key >> POSITION_BITS; }
  static size_t position(uint64_t key) { return key & ((uint64_t{1} << POSITION_BITS) - 1); }
};

// A Hamming distance, which has 16 bits, and a position among any number of codes.
using HammingKey = Key<48>;
// A float (see below), a rank or a number of something, which have 32 bits, and a position among
// the rows of an index, which are fewer than 2^32.
using RowKey = Key<32>;

// --- floats ------------------------------------------------------------------------------------

// An integer with the order of the float. The order is total: -0 is 0, and NaN comes last, so that
// sorting is safe whatever a file holds.
inline int32_t sortable(float x) {
  x += 0.0f;
  int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const bool is_number = (bits & 0x7fffffff) <= 0x7f800000;
  return is_number ? bits ^ (bits >> 31 & 0x7fffffff) : std::numeric_limits<int32_t>::max();
}

inline float from_sortable(int32_t sorted) {
  const int32_t bits = sorted ^ (sorted >> 31 & 0x7fffffff);
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// The same, faster, for floats that are not NaN.
inline int32_t sortable_number(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits ^ (bits >> 31 & 0x7fffffff);
}

inline uint64_t make_float_key(int32_t sorted, size_t position) {
  return RowKey::make(static_cast<uint32_t>(sorted) ^ 0x80000000, position);
}
inline int32_t sorted_of(uint64_t key) {
  return static_cast<int32_t>(static_cast<uint32_t>(RowKey::first(key)) ^ 0x80000000);
}
inline float float_of(uint64_t key) { return from_sortable(sorted_of(key)); }

// --- ties --------------------------------------------------------------------------------------

// Puts sorted keys into the order of (first, rank); positions are below 2^32. rank(position) is
// called once for each key whose first is equal to another's: ranks are far apart in memory, and if
// they changed during a sort, the sort could read beyond its bounds.
template <class OfPair, class Rank>
void order_ties(uint64_t* keys, uint64_t* end, Rank&& rank) {
  for (uint64_t* next; keys < end; keys = next) {
    const size_t first = OfPair::first(*keys);
    next = std::find_if(keys + 1, end, [=](uint64_t key) { return OfPair::first(key) != first; });
    if (next - keys == 1) continue;
    for (uint64_t* at = keys; at < next; ++at)
      *at = RowKey::make(rank(OfPair::position(*at)), OfPair::position(*at));
    std::sort(keys, next);
    for (uint64_t* at = keys; at < next; ++at) *at = OfPair::make(first, RowKey::position(*at));
  }
}

}  // namespace densehash
