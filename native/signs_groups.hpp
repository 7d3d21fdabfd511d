// What is known of queries before rows are looked at: tables, and the groups that they visit.
#pragma once

#include <stdexcept>
#include <vector>

#include "least.hpp"
#include "signs_scan.hpp"
#include "vectors.hpp"
#include "whole.hpp"

namespace densehash {
namespace {

// Queries made ready: relative to the shift, with tables, and the groups that they visit.
class Prepared {
 public:
  Prepared(const SignModel& model, const SignSettings& settings, size_t n_queries)
      : model_(model), room_(room_for(model, settings)), relative_(n_queries * model.width),
        bytes_(n_queries * model.bits * 4), own_(n_queries), lengths_(n_queries),
        tables_(n_queries), visits_(n_queries * room_), counts_(n_queries) {}

  // What a thread needs while it prepares up to n queries.
  struct Work {
    Work(const SignModel& model, const SignSettings& settings, size_t n)
        : whole(n * model.padded_width), units(n), sums(n * model.bits),
          center_sums(n * model.wholes.steps.size()), products(model.bits),
          least(model.n_groups, settings.probes) {}
    std::vector<int8_t> whole;
    std::vector<float> units;
    std::vector<int32_t> sums, center_sums;
    std::vector<float> products;
    Least least;
  };

  template <class Query>
  void prepare(const Query* queries, size_t first, size_t count, Work& work) {
    for (size_t i = 0; i < count; ++i) {
      own_[first + i] = make_relative(queries + (first + i) * model_.width, first + i);
      work.units[i] = to_whole(relative(first + i), model_.width,
                               work.whole.data() + i * model_.padded_width);
    }
    const WholeCenters& centers = model_.wholes;
    const size_t n_centers = centers.steps.size();
    model_.dots(work.whole.data(), count, model_.matrix, model_.padded_width, model_.bits,
                work.sums.data());
    model_.dots(work.whole.data(), count, centers.numbers.data(), model_.padded_width, n_centers,
                work.center_sums.data());
    for (size_t i = 0; i < count; ++i) {
      const int32_t* const sums = work.sums.data() + i * model_.bits;
      for (size_t b = 0; b < model_.bits; ++b)
        work.products[b] = model_.steps[b] * work.units[i] * static_cast<float>(sums[b]);
      tables_[first + i] = make_tables(work.products.data(), model_.bits, model_.units.alpha,
                                       bytes_.data() + (first + i) * model_.bits * 4);
      find_groups(first + i, work.units[i], work.center_sums.data() + i * n_centers, work.least);
    }
  }

  const float* relative(size_t q) const { return relative_.data() + q * model_.width; }
  // What distances to centres are measured from: |q|², or minus twice the product with the shift.
  float own(size_t q) const { return own_[q]; }
  float length(size_t q) const { return lengths_[q]; }  // of a query, where the metric is ip
  const Tables& tables(size_t q) const { return tables_[q]; }

  // Keys of groups by their distance less own(q), nearly: those that may be visited and some more, the nearest
  // first, the others in any order.
  uint64_t* visits(size_t q) { return visits_.data() + q * room_; }
  size_t n_visits(size_t q) const { return counts_[q]; }

 private:
  template <class Query>
  float make_relative(const Query* query, size_t q) {
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

  static size_t room_for(const SignModel& model, const SignSettings& settings) {
    return std::min(2 * settings.probes + kLanes, model.n_groups);
  }

  // The keys of the nearest centres, by distances in whole numbers.
  void find_groups(size_t q, float unit, const int32_t* sums, Least& least) {
    const WholeCenters& centers = model_.wholes;
    const float twice = 2 * unit;
    const float* const squares = centers.squares.data();
    const float* const steps = centers.steps.data();
    const size_t count = least.find(
        model_.n_groups,
        [=](size_t i) {
          return sortable_number(squares[i] - twice * steps[i] * static_cast<float>(sums[i]));
        },
        [](float bound) { return bound; });
    uint64_t* const keys = least.keys();
    counts_[q] = std::min(count, room_);
    if (count > room_) std::nth_element(keys, keys + room_, keys + count);
    std::copy_n(keys, counts_[q], visits(q));
    std::iter_swap(visits(q), std::min_element(visits(q), visits(q) + counts_[q]));
  }

  const SignModel& model_;
  size_t room_;
  std::vector<float> relative_;
  std::vector<uint8_t> bytes_;
  std::vector<float> own_, lengths_;
  std::vector<Tables> tables_;
  std::vector<uint64_t> visits_;
  std::vector<size_t> counts_;
};

// --- the order of groups -----------------------------------------------------------------------

// Puts the nearest of the groups from `begin` on, up to `end`, in order.
inline void order_groups(uint64_t* keys, size_t count, size_t begin, size_t end) {
  if (end < count) std::nth_element(keys + begin, keys + end, keys + count);
  std::sort(keys + begin, keys + end);
}

// The exact squared distance to a group's centre, or minus twice the product.
inline float distance_to_center(const SignModel& model, const Prepared& prepared, size_t q,
                                size_t group) {
  const float* center = model.centers + group * model.width;
  const float* query = prepared.relative(q);
  return static_cast<float>(
      model.metric == Metric::ip
          ? prepared.own(q) - 2 * sums<Metric::ip>(query, center, model.width).sum
          : sums<Metric::l2>(query, center, model.width).sum);
}

}  // namespace
}  // namespace densehash
