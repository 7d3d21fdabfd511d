// Which of a few rows may be among the nearest of some queries, by products in floats: these are
// made for several rows and queries at a time, which takes a fraction of a comparison.
#pragma once

#include <vector>

#include "signs.hpp"

namespace densehash {

class Rough {
 public:
  // Rows that are looked at together at most, and queries.
  static constexpr size_t kShared = 128, kQueries = 32;

  // Of queries (count, width), at most kQueries, and a segment that has vectors of float32.
  Rough(const SignModel& model, const SignSegment& segment, const float* queries, size_t count);

  // Farther rows are not wanted by query q; before this is said, all are.
  void set_bound(size_t q, float bound);

  // Rows that are farther than k of those looked at are not wanted by any query.
  void want_nearest(size_t k);

  // Of rows, at most kShared, after which n_after others follow.
  void look_at(const uint32_t* rows, size_t n, size_t n_after);

  // The queries to which row number i may be as near as wanted, whatever rounding does: a bit each.
  uint32_t near(size_t i) const;

 private:
  template <size_t QUADS>
  void multiply(const float* const* rows, size_t first, size_t n, size_t quad);
  float square_of(const float* vector) const;

  Metric metric_;
  size_t width_;
  const float* vectors_;
  size_t count_, stride_;  // queries, and these to a multiple of four
  float error_;
  size_t n_rows_ = 0;                    // that were looked at
  float of_rows_[kShared];               // squares
  std::vector<float> squares_, limits_;  // of queries: (stride,)
  std::vector<float> columns_;           // queries, a feature below the other: (width, stride)
  std::vector<float> products_;          // (rows, stride)
};

}  // namespace densehash
