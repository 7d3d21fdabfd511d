#include "signs_queries.hpp"

#include <algorithm>
#include <cmath>

#include "vectors.hpp"
#include "whole.hpp"

namespace densehash {
namespace {

// The lookup from products with four rows of G at a time, for all 16 values of their signs.
SignLookup make_lookup(const float* products, size_t bits, float least_step, uint8_t* bytes) {
  float widest = 0, base = 0;
  for (size_t b = 0; b < bits; b += 4) {
    const float half = (std::fabs(products[b]) + std::fabs(products[b + 1])) +
                       (std::fabs(products[b + 2]) + std::fabs(products[b + 3]));
    widest = std::max(widest, half);
    base -= half;
  }
  const float step = std::max(2 * widest / 63, least_step);
  const float times = 1 / step;
  for (size_t b = 0; b < bits; b += 4, bytes += 16) {
    float values[16];
    const float w[4] = {products[b] * times, products[b + 1] * times, products[b + 2] * times,
                        products[b + 3] * times};
    values[0] = 0.5f;  // a positive product counts with a sign of 1, a negative one with -1
    for (size_t i = 0; i < 4; ++i) values[0] -= 2 * std::min(w[i], 0.0f);
    for (size_t i = 0; i < 4; ++i)
      for (size_t v = 0, half = size_t{1} << i; v < half; ++v)
        values[v + half] = values[v] + 2 * w[i];
    for (size_t v = 0; v < 16; ++v)
      bytes[v] = static_cast<uint8_t>(std::clamp(static_cast<int>(values[v]), 0, 63));
  }
  return {bytes - bits * 4, step, base};
}

}  // namespace

SignQueries::SignQueries(const SignModel& model, size_t n_queries)
    : model_(model), n_regions_(model.wholes->regions.size()), relative_(n_queries * model.width),
      whole_(n_queries * model.padded_width), units_(n_queries),
      bytes_(n_queries * model.bits * 4), own_(n_queries), lengths_(n_queries),
      lookups_(n_queries), regions_(n_queries * n_regions_) {}

SignQueries::Work::Work(const SignModel& model, size_t n)
    : sums(n * std::max(model.bits, model.wholes->means.steps.size())), products(model.bits) {}

template <class Query>
float SignQueries::make_relative(const Query* query, size_t q) {
  float* to = relative_.data() + q * model_.width;
  for (size_t i = 0; i < model_.width; ++i) to[i] = to_float(query[i]);
  if (model_.metric == Metric::ip) {
    const double squared = sums<Metric::ip>(to, to, model_.width).sum;
    lengths_[q] = static_cast<float>(std::sqrt(squared));
    return static_cast<float>(-2 * sums<Metric::ip>(to, model_.shift, model_.width).sum);
  }
  float times = 1;
  if (model_.metric == Metric::cosine) {
    const double length = std::sqrt(sums<Metric::ip>(to, to, model_.width).sum);
    times = length > 0 ? static_cast<float>(1 / length) : 0;
  }
  for (size_t i = 0; i < model_.width; ++i) to[i] = to[i] * times - model_.shift[i];
  return static_cast<float>(sums<Metric::ip>(to, to, model_.width).sum);
}

template <class Query>
void SignQueries::prepare(const Query* queries, size_t first, size_t count, Work& work) {
  for (size_t q = first; q < first + count; ++q) {
    own_[q] = make_relative(queries + q * model_.width, q);
    units_[q] = to_whole(relative(q), model_.width, whole_.data() + q * model_.padded_width);
  }
  model_.dots(whole(first), count, model_.matrix, model_.padded_width, model_.bits,
              work.sums.data());
  for (size_t q = first; q < first + count; ++q) {
    const int32_t* const sums = work.sums.data() + (q - first) * model_.bits;
    for (size_t b = 0; b < model_.bits; ++b)
      work.products[b] = model_.steps[b] * units_[q] * static_cast<float>(sums[b]);
    lookups_[q] = make_lookup(work.products.data(), model_.bits, model_.units.alpha,
                              bytes_.data() + q * model_.bits * 4);
  }
  const WholeRows& means = model_.wholes->means;
  const size_t n_means = means.steps.size();
  model_.dots(whole(first), count, means.numbers.data(), model_.padded_width, n_means,
              work.sums.data());
  for (size_t q = first; q < first + count; ++q) {
    const int32_t* const sums = work.sums.data() + (q - first) * n_means;
    uint64_t* const keys = regions_.data() + q * n_regions_;
    for (size_t r = 0; r < n_regions_; ++r)
      keys[r] = make_float_key(whole_distance(means, r, units_[q], sums[r]), r);
    std::iter_swap(keys, std::min_element(keys, keys + n_regions_));
  }
}

template void SignQueries::prepare(const float*, size_t, size_t, Work&);
template void SignQueries::prepare(const uint8_t*, size_t, size_t, Work&);
template void SignQueries::prepare(const int8_t*, size_t, size_t, Work&);

float SignQueries::distance_to_center(size_t q, size_t group) const {
  const float* center = model_.centers + group * model_.width;
  const double found = model_.metric == Metric::ip
                           ? own(q) - 2 * sums<Metric::ip>(relative(q), center, model_.width).sum
                           : sums<Metric::l2>(relative(q), center, model_.width).sum;
  return static_cast<float>(found);
}

}  // namespace densehash
