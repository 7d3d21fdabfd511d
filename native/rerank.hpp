// Orders candidates by better distances. Outputs belong to the caller.
#pragma once

#include <cstdint>

#include "kernels.hpp"
#include "parallel.hpp"
#include "scan.hpp"

namespace densehash {

enum class Metric { l2, cosine, ip };

// A float of 16 bits.
struct Half {
  uint16_t bits;
};

// The candidates of each query: positions (queries, each), -1 for a missing one. They may come from
// a damaged file, or be changed at any time: a position that does not exist throws
// std::runtime_error.
struct Candidates {
  const int64_t* positions;
  size_t n_queries, each;
  size_t n_rows;          // fewer than 2^32
  const uint32_t* ranks;  // the place of each row in the order of ties; nullptr: the position
};

// The k nearest candidates of each query, by (distance, rank); infinite and -1 for missing ones.
// distances, positions: (queries, k).
struct Ranking {
  float* distances;
  int64_t* positions;
  size_t k;
};

// queries: (queries, width), vectors: (rows, width). Value is float, Half, uint8_t or int8_t; Query
// is float, or Value if that is an integer. squares: see Kernels.
template <class Query, class Value>
void rerank(Metric metric, const Query* queries, const Value* vectors, size_t width,
            const Candidates& candidates, Squares squares, Control& control,
            const Ranking& ranking);

// By the sum of |margin| over the bits that differ, exactly as densehash.asymmetric computes it.
// margins: (queries, bits).
void rerank_codes(const float* margins, size_t bits, Codes codes, const Candidates& candidates,
                  Control& control, const Ranking& ranking);

}  // namespace densehash
