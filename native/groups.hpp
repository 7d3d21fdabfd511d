// Codes that lie by groups, of which a query visits only some. Outputs belong to the caller.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "kernels.hpp"
#include "parallel.hpp"
#include "scan.hpp"

namespace densehash {

// Codes by group: those of group i lie at limits[i]..limits[i + 1]. The arrays may come from a
// damaged file, or be changed at any time: what they say is checked before it is followed, and
// std::runtime_error thrown.
struct Groups {
  struct Range {
    size_t begin, end;
  };
  Range range(size_t group) const {
    const int64_t begin = read_once(limits + group), end = read_once(limits + group + 1);
    if (begin < 0 || begin > end) throw std::runtime_error("the limits of groups do not rise");
    if (static_cast<uint64_t>(end) > codes.count)
      throw std::runtime_error("the limits of groups go beyond the last row");
    return {static_cast<size_t>(begin), static_cast<size_t>(end)};
  }

  // A code's place in the order of ties.
  size_t rank(size_t position) const {
    if (ranks == nullptr) return position;
    const uint32_t rank = read_once(ranks + position);
    if (rank >= codes.count) throw std::runtime_error("a rank is beyond the last row");
    return rank;
  }

  Codes codes;  // fewer than 2^32
  const int64_t* limits;
  size_t count;
  const uint32_t* ranks;   // of each code; nullptr: the position
  const uint8_t* allowed;  // by rank, whether a code may be found; nullptr: all may
};

// The p groups with the largest scores, largest first, ties by number; p is at most n_groups.
// scores: (queries, groups), groups: (queries, p).
void nearest_groups(const float* scores, size_t n_queries, size_t n_groups, size_t p,
                    Control& control, int32_t* groups);

// The k nearest codes in the groups that each query visits, by (distance, rank), in this order or
// in any; -1 where there are fewer. probes: (queries, p), no group twice for a query, the most
// promising first (it is faster so). distances, positions: (queries, k).
void top_k_in_groups(const Kernels& kernels, Codes queries, const Groups& groups,
                     const int32_t* probes, size_t p, size_t k, bool ordered, Control& control,
                     int32_t* distances, int64_t* positions);

}  // namespace densehash
