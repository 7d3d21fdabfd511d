// Distances between vectors. Sums are the same to the bit on every machine: those of integers are
// exact; those of floats are made in 16 lanes, which are added in a fixed order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rerank.hpp"

namespace densehash {
namespace {

// --- floats ------------------------------------------------------------------------------------

constexpr size_t kLanes = 16;
typedef float Floats4 __attribute__((vector_size(16)));

inline float to_float(float x) { return x; }
inline float to_float(uint8_t x) { return x; }
inline float to_float(int8_t x) { return x; }
inline float to_float(Half x) {
#ifdef __aarch64__
  __fp16 half;
  std::memcpy(&half, &x, sizeof half);
  return half;
#else
  // A product changes the bias of the exponent, which also handles subnormal numbers.
  const uint32_t magnitude = (x.bits & 0x7fffu) << 13;
  float value;
  std::memcpy(&value, &magnitude, sizeof value);
  value *= 0x1p112f;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits |= magnitude >= 0x7c00u << 13 ? 0x7f800000u : 0;  // infinite, or not a number
  bits |= (x.bits & 0x8000u) << 16;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

template <class Value>
ALWAYS_INLINE void load_lanes(const Value* from, Floats4* to) {
  float values[kLanes];
  for (size_t i = 0; i < kLanes; ++i) values[i] = to_float(from[i]);
  std::memcpy(to, values, sizeof values);
}

// Sums of a query and some vectors, 16 numbers at a time.
template <Metric METRIC>
struct Lanes {
  template <class Value>
  ALWAYS_INLINE void add(const float* query, const Value* vector) {
    Floats4 x[4], y[4];
    load_lanes(query, x);
    load_lanes(vector, y);
    for (int i = 0; i < 4; ++i) {
      const Floats4 difference = x[i] - y[i];
      sum[i] += METRIC == Metric::l2 ? difference * difference : x[i] * y[i];
      if (METRIC == Metric::cosine) length[i] += y[i] * y[i];
    }
  }
  ALWAYS_INLINE static float total(const Floats4* lanes) {
    const Floats4 four = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    return (four[0] + four[1]) + (four[2] + four[3]);
  }

  Floats4 sum[4] = {}, length[4] = {};
};

template <Metric METRIC, class Value>
ALWAYS_INLINE Sums sums(const float* query, const Value* vector, size_t width) {
  Lanes<METRIC> lanes;
  size_t i = 0;
  for (; i + kLanes <= width; i += kLanes) lanes.add(query + i, vector + i);
  if (i < width) {  // zeros add nothing
    float q[kLanes] = {};
    Value v[kLanes] = {};
    std::memcpy(q, query + i, (width - i) * sizeof *q);
    std::memcpy(v, vector + i, (width - i) * sizeof *v);
    lanes.add(q, v);
  }
  return {lanes.total(lanes.sum), METRIC == Metric::cosine ? lanes.total(lanes.length) : 0};
}

// --- integers ----------------------------------------------------------------------------------

// In a form that compilers vectorise.
template <Metric METRIC, class Value>
ALWAYS_INLINE Sums integer_sums(const Value* query, const Value* vector, size_t width) {
  constexpr size_t kMost = 32768;  // numbers whose products' sum fits 32 bits
  Sums sums{0, 0};
  for (size_t first = 0; first < width; first += kMost) {
    const size_t end = std::min(first + kMost, width);
    int32_t sum = 0, length = 0;
    for (size_t i = first; i < end; ++i) {
      const int32_t x = query[i], y = vector[i];
      sum += METRIC == Metric::l2 ? (x - y) * (x - y) : x * y;
      if (METRIC == Metric::cosine) length += y * y;
    }
    sums.sum += sum;
    sums.length += length;
  }
  return sums;
}

template <Metric METRIC>
ALWAYS_INLINE Sums sums(const uint8_t* query, const uint8_t* vector, size_t width) {
  return integer_sums<METRIC>(query, vector, width);
}

template <Metric METRIC>
ALWAYS_INLINE Sums sums(const int8_t* query, const int8_t* vector, size_t width) {
  return integer_sums<METRIC>(query, vector, width);
}

// --- distances ---------------------------------------------------------------------------------

// Distances of vectors to one query after another.
template <Metric METRIC, class Query, class Value>
class VectorMeasure {
 public:
  using Row = Value;
  using Sum = Sums;

  VectorMeasure(const Query* queries, size_t width, Squares squares)
      : queries_(queries), width_(width), squares_(squares) {}

  void start(size_t query) {
    query_ = queries_ + query * width_;
    if (METRIC != Metric::cosine) return;
    length_ = sums<METRIC>(query_, query_, width_).length;
    of_unit_ = length_ > 0 ? 1 / std::sqrt(length_) : 0;
  }

  Sums sums_of(const Value* vector) const { return sums<METRIC>(query_, vector, width_); }

  // All sums at once, if this machine has a kernel for it; returns whether it has.
  bool all_sums(const Value* vectors, const size_t* positions, size_t count, Sums* sums) const {
    if constexpr (METRIC == Metric::l2 && std::is_same_v<Query, uint8_t>) {
      if (squares_ == nullptr || width_ > kMostSquares) return false;
      squares_(query_, vectors, width_, positions, count, sums);
      return true;
    }
    return false;
  }

  // Roughly the distance or its square, because roots and quotients are slow and most vectors are
  // far.
  float roughly(const Sums& s) const {
    if (METRIC == Metric::l2) return static_cast<float>(s.sum);
    if (METRIC == Metric::ip) return static_cast<float>(-s.sum);
    const float length = std::sqrt(static_cast<float>(s.length));
    return length == 0 ? 1 : 1 - static_cast<float>(s.sum * of_unit_) / length;
  }

  // A vector whose rough distance is above this is surely farther than one whose rough distance is
  // `rough`, whatever the rounding.
  static float surely_farther(float rough) {
    if (METRIC == Metric::l2) return rough * 1.000001f;
    return METRIC == Metric::ip ? rough : rough + 4e-6f;
  }

  float distance(const Sums& s) const {
    if (METRIC == Metric::l2) return static_cast<float>(std::sqrt(s.sum));
    if (METRIC == Metric::ip) return static_cast<float>(-s.sum);
    const double lengths = std::sqrt(length_ * s.length);
    return lengths == 0 ? 1 : static_cast<float>(std::max(1 - s.sum / lengths, 0.0));
  }

 private:
  const Query* queries_;
  size_t width_;
  Squares squares_;
  const Query* query_ = nullptr;
  double length_ = 0;   // of the query, squared
  double of_unit_ = 0;  // scales the query to length 1
};

}  // namespace
}  // namespace densehash
