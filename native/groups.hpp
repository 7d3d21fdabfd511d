// Codes in groups, of which a query visits only some. Outputs belong to the caller.
#pragma once

#include <cstdint>

#include "checked.hpp"
#include "kernels.hpp"
#include "parallel.hpp"
#include "scan.hpp"

namespace densehash {

// Codes by group: those of group i are at limits[i]..limits[i + 1]. Numbers in the arrays are
// checked before they are used.
struct GroupedCodes {
  Range range(size_t group) const { return range_of(limits, group, codes.count); }
  // The range of a group that a query visits.
  Range probed(const int32_t* probe) const {
    const size_t group = static_cast<size_t>(read_once(probe));
    if (group >= count) throw std::runtime_error("a query visits a group that does not exist");
    return range(group);
  }
  // The place of a code in the order of ties.
  size_t rank(size_t position) const { return rank_of(ranks, position, codes.count); }

  Codes codes;  // fewer than 2^32
  const int64_t* limits;
  size_t count;
  const uint32_t* ranks;   // of codes; nullptr: the position
  const uint8_t* allowed;  // by rank, whether a code may be found; nullptr: all may
};

// What turns Hamming distances into estimated products: that of a query and a row is
// lengths[row] * (zero - bits that differ) * factors[query].
struct Products {
  const float* lengths;  // of all rows
  const float* factors;  // of all queries
  float zero;
};

// The p groups with the largest scores, largest first, ties by number; p is at most n_groups.
// scores: (queries, groups), groups: (queries, p).
void nearest_groups(const float* scores, size_t n_queries, size_t n_groups, size_t p,
                    Control& control, int32_t* groups);

// The k nearest codes in the groups that each query visits, by (distance, rank); in this order if
// `ordered`, otherwise in any; -1 for missing codes. probes: (queries, p), no group twice for a
// query; faster with the most promising first. distances, positions: (queries, k).
void top_k_in_groups(const Kernels& kernels, Codes queries, const GroupedCodes& groups,
                     const int32_t* probes, size_t p, size_t k, bool ordered, Control& control,
                     int32_t* distances, int64_t* positions);

// The k rows with the largest estimated products, as top_k_in_groups finds codes. distances are
// minus the products, infinite where there are fewer.
void top_products_in_groups(const Kernels& kernels, Codes queries, const GroupedCodes& groups,
                            const Products& products, const int32_t* probes, size_t p, size_t k,
                            bool ordered, Control& control, float* distances, int64_t* positions);

}  // namespace densehash
