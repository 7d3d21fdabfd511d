// Distances of one query to many codes, in plain C++: the portable path. For other sets, the
// compiler turns it into the popcount instructions of the set for which the including file is
// compiled. In an unnamed namespace for the reason given in kernels.hpp.
#pragma once

#include <cstring>

#include "kernels.hpp"

namespace densehash {
namespace {

inline uint64_t load64(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// The last `bytes` (1 to 7) bytes of a code as one word, without reading past them.
inline uint64_t load_tail(const uint8_t* p, size_t bytes) {
  uint64_t word = 0;
  if (bytes & 4) {
    uint32_t some;
    std::memcpy(&some, p, 4);
    word = some;
    p += 4;
  }
  if (bytes & 2) {
    uint16_t some;
    std::memcpy(&some, p, 2);
    word = word << 16 | some;
    p += 2;
  }
  if (bytes & 1) word = word << 8 | *p;
  return word;
}

template <size_t BYTES>  // 0: only known at run time
inline unsigned distance(const uint8_t* a, const uint8_t* b, size_t bytes) {
  if (BYTES != 0) bytes = BYTES;
  unsigned sum = 0;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8)
    sum += static_cast<unsigned>(__builtin_popcountll(load64(a + i) ^ load64(b + i)));
  if (i < bytes)
    sum += static_cast<unsigned>(
        __builtin_popcountll(load_tail(a + i, bytes - i) ^ load_tail(b + i, bytes - i)));
  return sum;
}

template <size_t BYTES, class D>
void row_of_width(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count, D* out) {
  if (BYTES != 0) bytes = BYTES;
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<D>(distance<BYTES>(query, codes + i * bytes, bytes));
}

// The common widths have their own loops.
template <class D>
void row(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count, D* out) {
  switch (bytes) {
    case 2: return row_of_width<2>(query, codes, bytes, count, out);
    case 4: return row_of_width<4>(query, codes, bytes, count, out);
    case 6: return row_of_width<6>(query, codes, bytes, count, out);
    case 8: return row_of_width<8>(query, codes, bytes, count, out);
    case 12: return row_of_width<12>(query, codes, bytes, count, out);
    case 16: return row_of_width<16>(query, codes, bytes, count, out);
    case 32: return row_of_width<32>(query, codes, bytes, count, out);
    case 64: return row_of_width<64>(query, codes, bytes, count, out);
    default: return row_of_width<0>(query, codes, bytes, count, out);
  }
}

// Counts eight distances, one in each byte, in pairs.
ALWAYS_INLINE void count_pairs(uint64_t eight, uint32_t* pairs) {
  ++pairs[eight & 0xffff];
  ++pairs[eight >> 16 & 0xffff];
  ++pairs[eight >> 32 & 0xffff];
  ++pairs[eight >> 48];
}

inline void count_pairs(const uint8_t* distances, size_t count, uint32_t* pairs) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) count_pairs(load64(distances + i), pairs);
  for (; i + 2 <= count; i += 2) ++pairs[distances[i] + 256 * distances[i + 1]];
}

template <decltype(Kernels::row8) ROW>
void count_row(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count,
               uint8_t* out, uint32_t* pairs) {
  ROW(query, codes, bytes, count, out);
  count_pairs(out, count, pairs);
}

template <size_t BYTES>
void gather_width(const uint8_t* query, const uint8_t* codes, size_t bytes,
                  const int64_t* positions, size_t count, uint16_t* out) {
  if (BYTES != 0) bytes = BYTES;
  constexpr size_t kAhead = 32;  // positions are scattered: fetches codes while others are compared
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count)
      __builtin_prefetch(codes + static_cast<size_t>(positions[i + kAhead]) * bytes);
    const uint8_t* code = codes + static_cast<size_t>(positions[i]) * bytes;
    out[i] = static_cast<uint16_t>(distance<BYTES>(query, code, bytes));
  }
}

void gather(const uint8_t* query, const uint8_t* codes, size_t bytes, const int64_t* positions,
            size_t count, uint16_t* out) {
  switch (bytes) {
    case 8: return gather_width<8>(query, codes, bytes, positions, count, out);
    case 16: return gather_width<16>(query, codes, bytes, positions, count, out);
    case 32: return gather_width<32>(query, codes, bytes, positions, count, out);
    default: return gather_width<0>(query, codes, bytes, positions, count, out);
  }
}

}  // namespace
}  // namespace densehash
