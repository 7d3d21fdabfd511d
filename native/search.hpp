// The four searches of packed codes. Outputs belong to the caller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels.hpp"
#include "parallel.hpp"
#include "scan.hpp"

namespace densehash {

// The k nearest codes of every query, ordered by (distance, position); -1 for missing ones.
// distances, indices: (queries, k).
void top_k(const Kernels& kernels, Codes queries, Codes codes, size_t k, Control& control,
           int32_t* distances, int64_t* indices);

// Room for the answers of `within`, made when their number is known, which is limits[queries].
struct Room {
  int32_t* distances;
  int64_t* indices;
};

// All codes at distance <= radius, query by query, ordered by (distance, position).
// limits: (queries + 1). make_room(total) is called once, on the calling thread.
void within(const Kernels& kernels, Codes queries, Codes codes, size_t radius, Control& control,
            int64_t* limits, const std::function<Room(size_t total)>& make_room);

// distances: (queries, codes).
void distances(const Kernels& kernels, Codes queries, Codes codes, Control& control,
               uint16_t* distances);

// Positions of some codes for every query: positions[limits[q]:limits[q + 1]]. The caller has
// checked them, but another thread may change the positions at any time; limits do not change.
struct Relevant {
  static constexpr int64_t kSome = 4096;

  // Copies the next positions up to `end`, at most kSome; returns how many.
  size_t copy(int64_t first, int64_t end, size_t n_codes, int64_t* to) const {
    const size_t n = static_cast<size_t>(std::min(kSome, end - first));
    std::memcpy(to, positions + first, n * sizeof *to);
    uint64_t largest = 0;
    for (size_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<uint64_t>(to[i]));
    if (largest >= n_codes)
      throw std::runtime_error("positions of relevant codes were changed while they were counted");
    return n;
  }

  const int64_t* limits;
  const int64_t* positions;
  int64_t* counts;  // (queries, bits + 1); the caller has set them to zero
};

// Counts the codes at each distance, and the relevant ones among them (nullptr: there are none).
// counts: (queries, bits + 1); the caller has set them to zero.
void histogram(const Kernels& kernels, Codes queries, Codes codes, const Relevant* relevant,
               Control& control, int64_t* counts);

}  // namespace densehash
