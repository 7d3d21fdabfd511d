// What is known of queries before rows are looked at: tables, and the groups that they visit.
#pragma once

#include <numeric>
#include <stdexcept>
#include <vector>

#include "least.hpp"
#include "signs_scan.hpp"
#include "vectors.hpp"
#include "whole.hpp"

namespace densehash {
namespace {

// Queries made ready: relative to the shift, with tables, and how far regions are.
class Prepared {
 public:
  Prepared(const SignModel& model, size_t n_queries)
      : model_(model), n_regions_(model.wholes->regions.size()),
        relative_(n_queries * model.width), whole_(n_queries * model.padded_width),
        units_(n_queries), bytes_(n_queries * model.bits * 4), own_(n_queries),
        lengths_(n_queries), tables_(n_queries), regions_(n_queries * n_regions_) {}

  // What a thread needs while it prepares up to n queries.
  struct Work {
    Work(const SignModel& model, size_t n)
        : sums(n * std::max(model.bits, model.wholes->means.steps.size())), products(model.bits) {}
    std::vector<int32_t> sums;
    std::vector<float> products;
  };

  template <class Query>
  void prepare(const Query* queries, size_t first, size_t count, Work& work) {
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
      tables_[q] = make_tables(work.products.data(), model_.bits, model_.units.alpha,
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

  const float* relative(size_t q) const { return relative_.data() + q * model_.width; }
  const int8_t* whole(size_t q) const { return whole_.data() + q * model_.padded_width; }
  float unit(size_t q) const { return units_[q]; }
  // What distances to centres are measured from: |q|², or minus twice the product with the shift.
  float own(size_t q) const { return own_[q]; }
  float length(size_t q) const { return lengths_[q]; }  // of a query, where the metric is ip
  const Tables& tables(size_t q) const { return tables_[q]; }
  // What brings a query to SignModel::longest; 1 where there is none.
  float scale(size_t q) const {
    if (model_.longest == 0) return 1;
    return lengths_[q] > 0 ? model_.longest / lengths_[q] : 0;
  }
  // Keys of all regions, the nearest first, the others in any order.
  uint64_t* regions(size_t q) { return regions_.data() + q * n_regions_; }
  size_t nearest_region(size_t q) const { return position_of(regions_[q * n_regions_]); }

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

  const SignModel& model_;
  size_t n_regions_;
  std::vector<float> relative_;
  std::vector<int8_t> whole_;
  std::vector<float> units_;
  std::vector<uint8_t> bytes_;
  std::vector<float> own_, lengths_;
  std::vector<Tables> tables_;
  std::vector<uint64_t> regions_;
};

// --- the order of groups -----------------------------------------------------------------------

// The groups of one query after another, nearly by their distance: the centres in the nearest
// regions are looked at first, those in others when many of these were visited.
class Groups {
 public:
  explicit Groups(const SignModel& model)
      : model_(model), least_(model.n_groups, kOrdered), places_(model.n_groups),
        distances_(model.n_groups), sums_(model.wholes->largest()) {}

  void start(Prepared& prepared, size_t q) {
    regions_ = prepared.regions(q);
    whole_ = prepared.whole(q);
    unit_ = prepared.unit(q) * prepared.scale(q);
    own_ = prepared.own(q);
    n_regions_ = n_looked_ = 0;
    look(model_.wholes->looked_at_first());
    n_gathered_ = n_looked_;
    const int32_t* const distances = distances_.data();
    ordered_ = least_.find(
        n_looked_, [=](size_t i) { return distances[i]; }, [](float bound) { return bound; });
    uint64_t* const keys = least_.keys();
    std::sort(keys, keys + ordered_);
    last_ = ordered_ == 0 ? 0 : keys[ordered_ - 1];
    n_keys_ = ordered_;
    is_partial_ = n_keys_ < n_looked_;
  }

  // Whether there is an i-th group, to be asked for one after the other from 0 on.
  bool has(size_t i) {
    if (i < ordered_) return true;
    uint64_t* const keys = least_.keys();
    if (is_partial_) {  // the others that were looked at
      is_partial_ = false;
      for (size_t j = 0; j < n_gathered_; ++j) {
        const uint64_t key = make_float_key(distances_[j], j);
        keys[n_keys_] = key;
        n_keys_ += key > last_;
      }
    }
    while (i * kVisited >= n_looked_ && n_regions_ < all_regions()) {
      look(n_regions_);
      for (; n_gathered_ < n_looked_; ++n_gathered_)
        keys[n_keys_++] = make_float_key(distances_[n_gathered_], n_gathered_);
    }
    if (i == n_keys_) return false;
    ordered_ = std::min(i + std::max(kOrdered, i / 2), n_keys_);
    if (ordered_ < n_keys_) std::nth_element(keys + i, keys + ordered_, keys + n_keys_);
    std::sort(keys + i, keys + ordered_);
    return true;
  }
  // Whether the i-th is known without work.
  bool is_known(size_t i) const { return i < ordered_; }
  float distance(size_t i) { return float_of(least_.keys()[i]); }  // less own(q), nearly
  size_t number(size_t i) { return model_.wholes->groups[place(i)]; }
  // Whether rounding to whole numbers has changed the i-th distance by little.
  bool is_close(size_t i) {
    if (model_.metric == Metric::ip) return false;
    const WholeRows& centers = model_.wholes->centers;
    const float step = centers.steps[place(i)], square = centers.squares[place(i)];
    const float whole = own_ + distance(i);  // squared; and the variance of its rounding
    const float variance = (step * step * own_ + unit_ * unit_ * square) / 3;
    return whole > 0 && variance < kLittle * kLittle * whole * whole;
  }

 private:
  // Groups that are put in order at once.
  static constexpr size_t kOrdered = 64;
  // More centres are looked at when one in so many of those before was visited.
  static constexpr size_t kVisited = 16;
  // What rounding may change of a squared distance, as a share.
  static constexpr float kLittle = 0.01f;

  size_t place(size_t i) { return places_[position_of(least_.keys()[i])]; }

  size_t all_regions() const { return model_.wholes->regions.size(); }

  // Looks at the centres in `count` more regions.
  void look(size_t count) {
    const WholeCenters& wholes = *model_.wholes;
    const size_t end = std::min(n_regions_ + count, all_regions());
    if (end < all_regions())
      std::nth_element(regions_ + n_regions_, regions_ + end, regions_ + all_regions());
    for (; n_regions_ < end; ++n_regions_) {
      const WholeCenters::Region region = wholes.regions[position_of(regions_[n_regions_])];
      const size_t padded = (region.count + 7) / 8 * 8;
      model_.dots(whole_, 1, wholes.centers.numbers.data() + region.first * model_.padded_width,
                  model_.padded_width, padded, sums_.data());
      const float* const squares = wholes.centers.squares.data() + region.first;
      const float* const steps = wholes.centers.steps.data() + region.first;
      const float twice = 2 * unit_;
      const int32_t* const __restrict sums = sums_.data();
      int32_t* const __restrict to = distances_.data() + n_looked_;
      const size_t count = region.count;
      for (size_t i = 0; i < count; ++i)
        to[i] = sortable_number(squares[i] - twice * steps[i] * static_cast<float>(sums[i]));
      std::iota(places_.data() + n_looked_, places_.data() + n_looked_ + region.count,
                region.first);
      n_looked_ += region.count;
    }
  }

  const SignModel& model_;
  Least least_;
  Array<uint32_t> places_;  // that were looked at
  Array<int32_t> distances_, sums_;
  uint64_t* regions_ = nullptr;
  const int8_t* whole_ = nullptr;
  float unit_ = 0, own_ = 0;
  size_t n_regions_ = 0, n_looked_ = 0, n_gathered_ = 0, n_keys_ = 0, ordered_ = 0;
  uint64_t last_ = 0;
  bool is_partial_ = false;
};

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
