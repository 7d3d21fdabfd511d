// Candidates put in order by better distances. Outputs belong to the caller.
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

// Rows that each query asks about: positions (queries, each), -1 where there is none. They may
// come from a damaged file, or be changed at any time: a position that is not there throws
// std::runtime_error.
struct Candidates {
  const int64_t* positions;
  size_t n_queries, each;
  size_t n_rows;          // fewer than 2^32
  const uint32_t* ranks;  // of each row, its place in the order of ties; nullptr: the position
};

// The k nearest of each query's candidates, by (distance, rank); infinite and -1 where there are
// fewer. distances, positions: (queries, k).
struct Ranking {
  float* distances;
  int64_t* positions;
  size_t k;
};

// queries: (queries, width), vectors: (rows, width). Query is float, or Value where that is an
// integer; Value is float, Half, uint8_t or int8_t. squares: see Kernels.
template <class Query, class Value>
void rerank(Metric metric, const Query* queries, const Value* vectors, size_t width,
            const Candidates& candidates, Squares squares, Control& control,
            const Ranking& ranking);

// By the sum of |margin| over the bits that differ, which is what densehash.asymmetric computes,
// to the bit. margins: (queries, bits).
void rerank_codes(const float* margins, size_t bits, Codes codes, const Candidates& candidates,
                  Control& control, const Ranking& ranking);

}  // namespace densehash
