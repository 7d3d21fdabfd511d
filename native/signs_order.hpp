// The order in which a query visits groups.
#pragma once

#include "least.hpp"
#include "signs_queries.hpp"

namespace densehash {

// The groups of one query after another, nearly in order of distance: the centres in the nearest
// regions are compared first, those in other regions after many of the first were visited.
class GroupOrder {
 public:
  explicit GroupOrder(const SignModel& model)
      : model_(model), least_(model.n_groups, kOrdered), places_(model.n_groups),
        distances_(model.n_groups), sums_(model.wholes->largest()) {}

  void start(SignQueries& queries, size_t q);

  // Whether there is an i-th group. Call it for 0, 1, 2 and so on.
  bool has(size_t i) { return i < ordered_ || order_more(i); }
  // Whether the i-th group is known already.
  bool is_known(size_t i) const { return i < ordered_; }
  float distance(size_t i) { return float_of(least_.keys()[i]); }  // squared, minus own(q); rounded
  size_t number(size_t i) { return model_.wholes->groups[place(i)]; }
  // Whether rounding to whole numbers has changed the i-th distance by little.
  bool is_close(size_t i) {
    if (model_.metric == Metric::ip) return false;
    const WholeRows& centers = model_.wholes->centers;
    const float step = centers.steps[place(i)], square = centers.squares[place(i)];
    const float whole = own_ + distance(i);  // squared; below, the variance of its rounding
    const float variance = (step * step * own_ + unit_ * unit_ * square) / 3;
    return whole > 0 && variance < kLittle * kLittle * whole * whole;
  }

 private:
  // How many groups are put in order at once.
  static constexpr size_t kOrdered = 64;
  // More centres are compared after one in this many of the earlier ones was visited.
  static constexpr size_t kVisited = 16;
  // The share of a squared distance that rounding may change.
  static constexpr float kLittle = 0.01f;

  size_t place(size_t i) { return places_[RowKey::position(least_.keys()[i])]; }

  size_t all_regions() const { return model_.wholes->regions.size(); }

  // Puts more groups in order, from the i-th on; returns whether there is an i-th.
  bool order_more(size_t i);
  // Compares the centres in `count` more regions.
  void look(size_t count);

  const SignModel& model_;
  Least least_;
  Array<uint32_t> places_;  // of the compared centres
  Array<int32_t> distances_, sums_;
  uint64_t* regions_ = nullptr;
  const int8_t* whole_ = nullptr;
  float unit_ = 0, own_ = 0;
  size_t n_regions_ = 0, n_looked_ = 0, n_gathered_ = 0, n_keys_ = 0, ordered_ = 0;
  uint64_t last_ = 0;
  bool is_partial_ = false;
};

}  // namespace densehash
