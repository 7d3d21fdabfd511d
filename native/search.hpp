// The four questions about packed codes. Outputs belong to the caller.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.hpp"
#include "parallel.hpp"
#include "scan.hpp"

namespace densehash {

// The k nearest of every query, ordered by (distance, position); -1 where there are fewer.
// distances, indices: (queries, k).
void top_k(const Kernels& kernels, Codes queries, Codes codes, size_t k, Control& control,
           int32_t* distances, int64_t* indices);

// Room for the answers of `within`, made once their number is known: limits[queries] of them.
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

// Positions of some codes for every query: positions[limits[q]:limits[q + 1]].
struct Relevant {
  const int64_t* limits;
  const int64_t* positions;
  int64_t* counts;  // (queries, bits + 1), set to zero by the caller
};

// How many codes lie at each distance, and how many of the relevant ones (nullptr: none are).
// counts: (queries, bits + 1), set to zero by the caller.
void histogram(const Kernels& kernels, Codes queries, Codes codes, const Relevant* relevant,
               Control& control, int64_t* counts);

}  // namespace densehash
