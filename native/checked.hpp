// For arrays that may come from a damaged file, and that other threads may change at any time: a
// number is read once and checked before it is used; a wrong one throws std::runtime_error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace densehash {

// Reads a number once, so that the number that is checked is the one that is used.
template <class T>
T read_once(const T* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}

struct Range {
  size_t begin, end;
};

// Where the rows of a group are among n_rows: at limits[group]..limits[group + 1].
inline Range range_of(const int64_t* limits, size_t group, size_t n_rows) {
  const int64_t begin = read_once(limits + group), end = read_once(limits + group + 1);
  if (begin < 0 || begin > end) throw std::runtime_error("the limits of groups do not rise");
  if (static_cast<uint64_t>(end) > n_rows)
    throw std::runtime_error("the limits of groups go beyond the last row");
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

// The place of a row in the order of ties; its number if there are no ranks.
inline size_t rank_of(const uint32_t* ranks, size_t row, size_t n_rows) {
  if (ranks == nullptr) return row;
  const uint32_t rank = read_once(ranks + row);
  if (rank >= n_rows) throw std::runtime_error("a rank is beyond the last row");
  return rank;
}

}  // namespace densehash
