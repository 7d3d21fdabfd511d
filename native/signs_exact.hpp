// Distances by more than signs: by the vectors of a segment, or by its second sketch.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "signs.hpp"
#include "vectors.hpp"

namespace densehash {
namespace {

// Distances of the rows of a segment to one query after another. The estimate is that of the signs.
class Exact {
 public:
  virtual ~Exact() = default;
  virtual void start(size_t query) = 0;
  virtual float distance(size_t row, float estimate) const = 0;
  virtual void fetch(size_t row) const = 0;
};

constexpr float kFarthest = std::numeric_limits<float>::infinity();

inline void fetch_bytes(const void* from, size_t bytes) {
  const char* at = static_cast<const char*>(from);
  for (const char* end = at + bytes; at < end; at += 64) __builtin_prefetch(at);
}

template <Metric METRIC, class Query, class Value>
class ExactVectors final : public Exact {
 public:
  ExactVectors(const Query* queries, const void* vectors, size_t width)
      : measure_(queries, width, nullptr), vectors_(static_cast<const Value*>(vectors)),
        width_(width) {}
  void start(size_t query) override { measure_.start(query); }
  float distance(size_t row, float) const override {
    return measure_.distance(measure_.sums_of(vectors_ + row * width_));
  }
  void fetch(size_t row) const override {
    fetch_bytes(vectors_ + row * width_, width_ * sizeof(Value));
  }

 private:
  VectorMeasure<METRIC, Query, Value> measure_;
  const Value* vectors_;
  size_t width_;
};

// Vectors in whole numbers with a scale for each row; for a metric that depends on lengths.
template <Metric METRIC>
class ScaledVectors final : public Exact {
 public:
  ScaledVectors(const float* queries, const SignSegment& segment, size_t width)
      : queries_(queries), vectors_(static_cast<const int8_t*>(segment.vectors)),
        scales_(segment.scales), width_(width) {}
  void start(size_t query) override { query_ = queries_ + query * width_; }
  float distance(size_t row, float) const override {
    const int8_t* const vector = vectors_ + row * width_;
    const float scale = scales_[row];
    Floats4 sums[4] = {};
    size_t i = 0;
    for (; i + kLanes <= width_; i += kLanes) add(query_ + i, vector + i, scale, sums);
    if (i < width_) {  // zeros add nothing
      float q[kLanes] = {};
      int8_t v[kLanes] = {};
      std::memcpy(q, query_ + i, (width_ - i) * sizeof *q);
      std::memcpy(v, vector + i, width_ - i);
      add(q, v, scale, sums);
    }
    const float sum = Lanes<METRIC>::total(sums);
    const float found = METRIC == Metric::l2 ? std::sqrt(sum) : -sum;
    return std::isnan(found) ? kFarthest : found;  // the scale may come from a damaged file
  }
  void fetch(size_t row) const override {
    fetch_bytes(vectors_ + row * width_, width_);
    __builtin_prefetch(scales_ + row);
  }

 private:
  ALWAYS_INLINE static void add(const float* query, const int8_t* vector, float scale,
                                Floats4* sums) {
    Floats4 x[4], y[4];
    load_lanes(query, x);
    load_lanes(vector, y);
    for (int i = 0; i < 4; ++i) {
      const Floats4 value = y[i] * scale, difference = x[i] - value;
      sums[i] += METRIC == Metric::l2 ? difference * difference : x[i] * value;
    }
  }

  const float* queries_;
  const int8_t* vectors_;
  const float* scales_;
  size_t width_;
  const float* query_ = nullptr;
};

inline float float_of_bits(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// Estimates by both sketches. A query's products with the directions are kept: it comes back.
template <class Query>
class SecondSketch final : public Exact {
 public:
  SecondSketch(Metric metric, const Query* queries, const SignSegment& segment, size_t width)
      : metric_(metric), queries_(queries), segment_(segment), model_(*segment.second_model),
        width_(width), tables_(4 * model_.bits), products_(0) {}

  void start(size_t query) override {
    if (query == query_) return;
    query_ = query;
    if (products_.size() <= query) products_.resize(query + 1);
    std::vector<float>& products = products_[query];
    if (products.empty()) multiply(queries_ + query * width_, products);
    float* table = tables_.data();
    for (size_t bit = 0; bit < model_.bits; bit += 4, table += 16) {
      float parts[4];
      for (size_t i = 0; i < 4; ++i)
        parts[i] = model_.halves[bit + i] * products[model_.numbers[bit + i]];
      for (unsigned value = 0; value < 16; ++value) {
        float signs[4];
        for (unsigned i = 0; i < 4; ++i) signs[i] = value >> i & 1u ? parts[i] : -parts[i];
        table[value] = (signs[0] + signs[1]) + (signs[2] + signs[3]);
      }
    }
  }

  float distance(size_t row, float estimate) const override {
    const uint8_t* const code = segment_.second + row * (model_.bits / 8);
    const float* table = tables_.data();
    float low = 0, high = 0;
    for (size_t i = 0; i < model_.bits / 8; ++i, table += 32) {
      low += table[code[i] & 15];
      high += table[16 + (code[i] >> 4)];
    }
    const uint32_t factors = segment_.second_factors[row];
    const float found =
        estimate + (float_of_bits(factors & 0xffff0000u) -
                    float_of_bits(factors << 16) * (low + high));
    if (std::isnan(found)) return kFarthest;  // of a damaged file
    if (metric_ == Metric::l2) return std::sqrt(std::max(found, 0.0f));
    return metric_ == Metric::ip ? found / 2 : std::max(found / 2, 0.0f);
  }

  void fetch(size_t row) const override {
    fetch_bytes(segment_.second + row * (model_.bits / 8), model_.bits / 8);
    __builtin_prefetch(segment_.second_factors + row);
  }

 private:
  void multiply(const Query* query, std::vector<float>& products) const {
    std::vector<float> relative(width_);
    for (size_t i = 0; i < width_; ++i) relative[i] = to_float(query[i]);
    if (metric_ != Metric::ip) {
      float times = 1;
      if (metric_ == Metric::cosine) {
        const double length =
            std::sqrt(sums<Metric::ip>(relative.data(), relative.data(), width_).sum);
        times = length > 0 ? static_cast<float>(1 / length) : 0;
      }
      for (size_t i = 0; i < width_; ++i)
        relative[i] = relative[i] * times - segment_.shift[i];
    }
    products.resize(model_.count);
    for (size_t i = 0; i < model_.count; ++i)
      products[i] = static_cast<float>(
          sums<Metric::ip>(relative.data(), model_.directions + i * width_, width_).sum);
  }

  Metric metric_;
  const Query* queries_;
  const SignSegment& segment_;
  const SecondModel& model_;
  size_t width_;
  std::vector<float> tables_;  // (bits / 4, 16)
  std::vector<std::vector<float>> products_;
  size_t query_ = SIZE_MAX;
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
  if (segment.values == Values::none) {
    if (segment.second == nullptr) return nullptr;
    return std::make_unique<SecondSketch<Query>>(metric, queries, segment, width);
  }
  if constexpr (std::is_same_v<Query, float>) {
    const void* vectors = segment.vectors;
    if (segment.scales != nullptr && metric == Metric::l2)
      return std::make_unique<ScaledVectors<Metric::l2>>(queries, segment, width);
    if (segment.scales != nullptr && metric == Metric::ip)
      return std::make_unique<ScaledVectors<Metric::ip>>(queries, segment, width);
    switch (segment.values) {
      case Values::float32: return exact_vectors<float, float>(metric, queries, vectors, width);
      case Values::float16: return exact_vectors<float, Half>(metric, queries, vectors, width);
      case Values::uint8: return exact_vectors<float, uint8_t>(metric, queries, vectors, width);
      default: return exact_vectors<float, int8_t>(metric, queries, vectors, width);
    }
  } else {
    if (segment.scales != nullptr)
      throw std::invalid_argument("vectors with scales are compared with float32");
    const Values own = std::is_same_v<Query, uint8_t> ? Values::uint8 : Values::int8;
    if (segment.values != own)
      throw std::invalid_argument("no way to compare vectors of these types");
    return exact_vectors<Query, Query>(metric, queries, segment.vectors, width);
  }
}

}  // namespace
}  // namespace densehash
