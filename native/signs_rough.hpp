// Finds which of a few rows may be among the nearest of some queries, by products in floats. These
// are computed for several rows and queries at a time, which takes a fraction of the time of exact
// comparisons.
#pragma once

#include <vector>

#include "signs.hpp"

namespace densehash {

class Rough {
 public:
  // How many rows and queries are compared together at most.
  static constexpr size_t kShared = 128, kQueries = 32;

  // For queries (count, width), at most kQueries, and a segment with vectors of float32.
  Rough(const SignModel& model, const SignSegment& segment, const float* queries, size_t count);

  // Query q does not need rows farther than this; at first, it needs all.
  void set_bound(size_t q, float bound);

  // No query needs rows that are farther than k of the current rows.
  void want_nearest(size_t k);

  // Sets the current rows, at most kShared; n_after more follow them in the array.
  void look_at(const uint32_t* rows, size_t n, size_t n_after);

  // The queries that may need the i-th row, whatever the rounding: one bit each.
  uint32_t near(size_t i) const;

 private:
  template <size_t QUADS>
  void multiply(const float* const* rows, size_t first, size_t n, size_t quad);
  float square_of(const float* vector) const;

  Metric metric_;
  size_t width_;
  const float* vectors_;
  size_t count_, stride_;  // queries, and their number up to a multiple of four
  float error_;
  size_t n_rows_ = 0;                    // current rows
  float of_rows_[kShared];               // squares
  std::vector<float> squares_, limits_;  // of queries: (stride,)
  std::vector<float> columns_;           // queries, transposed: (width, stride)
  std::vector<float> products_;          // (rows, stride)
};

}  // namespace densehash
