#include "signs_order.hpp"

#include <algorithm>
#include <numeric>

namespace densehash {

void GroupOrder::start(SignQueries& queries, size_t q) {
  regions_ = queries.regions(q);
  whole_ = queries.whole(q);
  unit_ = queries.unit(q) * queries.scale(q);
  own_ = queries.own(q);
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

bool GroupOrder::order_more(size_t i) {
  uint64_t* const keys = least_.keys();
  if (is_partial_) {  // adds the others that were compared
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

void GroupOrder::look(size_t count) {
  const WholeCenters& wholes = *model_.wholes;
  const size_t end = std::min(n_regions_ + count, all_regions());
  if (end < all_regions())
    std::nth_element(regions_ + n_regions_, regions_ + end, regions_ + all_regions());
  for (; n_regions_ < end; ++n_regions_) {
    const WholeCenters::Region region = wholes.regions[RowKey::position(regions_[n_regions_])];
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
    std::iota(places_.data() + n_looked_, places_.data() + n_looked_ + region.count, region.first);
    n_looked_ += region.count;
  }
}

}  // namespace densehash
