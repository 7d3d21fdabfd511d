// Exact distances to the vectors of a segment.
#pragma once

#include <memory>
#include <stdexcept>

#include "signs.hpp"
#include "vectors.hpp"

namespace densehash {
namespace {

// Distances of the vectors of a segment to one query after another.
class Exact {
 public:
  virtual ~Exact() = default;
  virtual void start(size_t query) = 0;
  virtual float distance(size_t row) const = 0;
  virtual void fetch(size_t row) const = 0;
};

template <Metric METRIC, class Query, class Value>
class ExactVectors final : public Exact {
 public:
  ExactVectors(const Query* queries, const void* vectors, size_t width)
      : measure_(queries, width, nullptr), vectors_(static_cast<const Value*>(vectors)),
        width_(width) {}
  void start(size_t query) override { measure_.start(query); }
  float distance(size_t row) const override {
    return measure_.distance(measure_.sums_of(vectors_ + row * width_));
  }
  void fetch(size_t row) const override {
    const char* at = reinterpret_cast<const char*>(vectors_ + row * width_);
    const char* end = reinterpret_cast<const char*>(vectors_ + (row + 1) * width_);
    for (; at < end; at += 64) __builtin_prefetch(at);
  }

 private:
  VectorMeasure<METRIC, Query, Value> measure_;
  const Value* vectors_;
  size_t width_;
};

template <class Query, class Value>
std::unique_ptr<Exact> exact_vectors(Metric metric, const Query* queries, const void* vectors,
                                     size_t width) {
  switch (metric) {
    case Metric::l2:
      return std::make_unique<ExactVectors<Metric::l2, Query, Value>>(queries, vectors, width);
    case Metric::cosine:
      return std::make_unique<ExactVectors<Metric::cosine, Query, Value>>(queries, vectors, width);
    default:
      return std::make_unique<ExactVectors<Metric::ip, Query, Value>>(queries, vectors, width);
  }
}

template <class Query>
std::unique_ptr<Exact> exact_of(Metric metric, const Query* queries, const SignSegment& segment,
                                size_t width) {
  if (segment.values == Values::none) return nullptr;
  if constexpr (std::is_same_v<Query, float>) {
    const void* vectors = segment.vectors;
    switch (segment.values) {
      case Values::float32: return exact_vectors<float, float>(metric, queries, vectors, width);
      case Values::float16: return exact_vectors<float, Half>(metric, queries, vectors, width);
      case Values::uint8: return exact_vectors<float, uint8_t>(metric, queries, vectors, width);
      default: return exact_vectors<float, int8_t>(metric, queries, vectors, width);
    }
  } else {
    const Values own = std::is_same_v<Query, uint8_t> ? Values::uint8 : Values::int8;
    if (segment.values != own)
      throw std::invalid_argument("no way to compare vectors of these types");
    return exact_vectors<Query, Query>(metric, queries, segment.vectors, width);
  }
}

}  // namespace
}  // namespace densehash
