#include "signs_exact.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "vectors.hpp"

namespace densehash {
namespace {

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
  float distance(size_t row, size_t) const override {
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

// Vectors of whole numbers with a scale for each row; for metrics that depend on lengths.
template <Metric METRIC>
class ScaledVectors final : public Exact {
 public:
  ScaledVectors(const float* queries, const SignSegment& segment, size_t width)
      : queries_(queries), vectors_(static_cast<const int8_t*>(segment.vectors)),
        scales_(segment.scales), width_(width) {}
  void start(size_t query) override { query_ = queries_ + query * width_; }
  float distance(size_t row, size_t) const override {
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

// Products of a query with the rows of the decoders, kept because a query comes back.
struct Products {
  std::vector<float> relative;       // the query
  std::vector<float> first, second;  // with the rows of each decoder, (bits,)
  float own;                         // see SignQueries
};

// Estimates by both sketches, entirely in floats: lookups in bytes tell which rows may be near,
// these estimates tell which are.
template <class Query>
class SecondSketch final : public Exact {
 public:
  SecondSketch(const SignModel& model, const Query* queries, const SignSegment& segment)
      : model_(model), second_(*segment.second_model), queries_(queries), segment_(segment),
        first_lookup_(4 * model.bits), second_lookup_(4 * second_.bits) {}

  void start(size_t query) override {
    if (query == query_) return;
    query_ = query;
    if (products_.size() <= query) products_.resize(query + 1);
    if (!products_[query]) products_[query] = products_of(queries_ + query * model_.width);
    make_float_lookup(products_[query]->first, first_lookup_.data());
    make_float_lookup(products_[query]->second, second_lookup_.data());
  }

  float distance(size_t row, size_t entry) const override {
    const uint8_t* const block = segment_.blocks + entry / kBlock * block_bytes(model_.bits);
    const size_t place = entry % kBlock;
    const unsigned shift = place < 16 ? 0 : 4;
    const float* lookup = first_lookup_.data();
    float low = 0, high = 0;
    for (size_t i = 0; i < model_.bits / 8; ++i, lookup += 32) {
      low += lookup[block[32 * i + place % 16] >> shift & 15];
      high += lookup[16 + (block[32 * i + 16 + place % 16] >> shift & 15)];
    }
    const float of_first = low + high;
    const uint8_t* const code = segment_.second + row * (second_.bits / 8);
    lookup = second_lookup_.data();
    low = high = 0;
    for (size_t i = 0; i < second_.bits / 8; ++i, lookup += 32) {
      low += lookup[code[i] & 15];
      high += lookup[16 + (code[i] >> 4)];
    }
    const float of_second = low + high;
    int16_t alpha, beta;
    std::memcpy(&alpha, block + 4 * model_.bits + 2 * place, sizeof alpha);
    std::memcpy(&beta, block + 4 * model_.bits + 2 * (kBlock + place), sizeof beta);
    const float first = (model_.units.alpha * static_cast<float>(alpha) - of_first) /
                        (model_.units.beta * static_cast<float>(std::max<int>(beta, 1)));
    const uint32_t factors = segment_.second_factors[row];
    const float second =
        float_of_bits(factors & 0xffff0000u) - float_of_bits(factors << 16) * of_second;
    const float found = to_center(group_of(entry)) + (first + second);
    if (std::isnan(found)) return kFarthest;  // from a damaged file
    if (model_.metric == Metric::l2) return std::sqrt(std::max(found, 0.0f));
    return model_.metric == Metric::ip ? found / 2 : std::max(found / 2, 0.0f);
  }

  void fetch(size_t row) const override {
    fetch_bytes(segment_.second + row * (second_.bits / 8), second_.bits / 8);
    __builtin_prefetch(segment_.second_factors + row);
  }

 private:
  static void make_float_lookup(const std::vector<float>& products, float* lookup) {
    for (size_t bit = 0; bit < products.size(); bit += 4, lookup += 16)
      for (unsigned value = 0; value < 16; ++value) {
        float signed_[4];
        for (unsigned i = 0; i < 4; ++i)
          signed_[i] = value >> i & 1u ? products[bit + i] : -products[bit + i];
        lookup[value] = (signed_[0] + signed_[1]) + (signed_[2] + signed_[3]);
      }
  }

  std::unique_ptr<Products> products_of(const Query* query) const {
    const size_t width = model_.width;
    auto found = std::make_unique<Products>();
    std::vector<float>& relative = found->relative;
    relative.resize(width);
    for (size_t i = 0; i < width; ++i) relative[i] = to_float(query[i]);
    if (model_.metric == Metric::ip) {
      found->own =
          static_cast<float>(-2 * sums<Metric::ip>(relative.data(), model_.shift, width).sum);
    } else {
      float times = 1;
      if (model_.metric == Metric::cosine) {
        const double length =
            std::sqrt(sums<Metric::ip>(relative.data(), relative.data(), width).sum);
        times = length > 0 ? static_cast<float>(1 / length) : 0;
      }
      for (size_t i = 0; i < width; ++i) relative[i] = relative[i] * times - model_.shift[i];
    }
    const auto product = [&](const auto* with) {
      return static_cast<float>(sums<Metric::ip>(relative.data(), with, width).sum);
    };
    found->first.resize(model_.bits);
    for (size_t b = 0; b < model_.bits; ++b)
      found->first[b] = model_.steps[b] * product(model_.matrix + b * model_.padded_width);
    std::vector<float> of_directions(second_.count);
    for (size_t i = 0; i < second_.count; ++i)
      of_directions[i] = product(second_.directions + i * width);
    found->second.resize(second_.bits);
    for (size_t b = 0; b < second_.bits; ++b)
      found->second[b] = second_.halves[b] * of_directions[second_.numbers[b]];
    return found;
  }

  // Always a valid group, even if the file is damaged.
  size_t group_of(size_t entry) const {
    const int64_t* const limits = segment_.limits;
    size_t low = 0, high = model_.n_groups;  // it is at low or above, and below high
    while (high - low > 1) {
      const size_t middle = (low + high) / 2;
      (limits[middle] <= static_cast<int64_t>(entry) ? low : high) = middle;
    }
    return low;
  }

  float to_center(size_t group) const {
    const float* const center = model_.centers + group * model_.width;
    const Products& products = *products_[query_];
    const float* const query = products.relative.data();
    return static_cast<float>(model_.metric == Metric::ip
                                  ? products.own -
                                        2 * sums<Metric::ip>(query, center, model_.width).sum
                                  : sums<Metric::l2>(query, center, model_.width).sum);
  }

  const SignModel& model_;
  const SecondModel& second_;
  const Query* queries_;
  const SignSegment& segment_;
  std::vector<float> first_lookup_, second_lookup_;  // (bits / 4, 16)
  std::vector<std::unique_ptr<Products>> products_;
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
std::unique_ptr<Exact> exact_of(const SignModel& model, const Query* queries,
                                const SignSegment& segment) {
  const Metric metric = model.metric;
  const size_t width = model.width;
  if (segment.values == Values::none) {
    if (segment.second == nullptr) return nullptr;
    return std::make_unique<SecondSketch<Query>>(model, queries, segment);
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

template <class Query>
Exacts exacts_of(const SignModel& model, const std::vector<SignSegment>& segments,
                 const Query* queries) {
  Exacts exacts;
  for (const SignSegment& segment : segments) exacts.push_back(exact_of(model, queries, segment));
  return exacts;
}

#define EXACTS(Query) \
  template Exacts exacts_of(const SignModel&, const std::vector<SignSegment>&, const Query*)
EXACTS(float);
EXACTS(uint8_t);
EXACTS(int8_t);

}  // namespace densehash
