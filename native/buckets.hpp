// Rows of buckets compared with a query, and the nearest of them kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "multi.hpp"
#include "select.hpp"

namespace densehash {

// The k smallest (distance, position) of a stream in any order.
class NearestRows {
 public:
  NearestRows(size_t k, size_t bits)
      : k_(k), room_(std::max<size_t>(2 * k, 64)), bound_(bits + 1), counts_(bits + 1) {}

  // Candidates at this distance or farther are not needed any more.
  size_t bound() const { return bound_; }

  // Whether there are k up to this distance.
  bool complete(size_t distance) const { return bound_ <= distance + 1 && closer_ >= k_; }

  void hit(size_t distance, size_t position) {  // distance < bound()
    const uint64_t key = make_key(distance, position);
    if (key > last_) return;
    if (keys_.size() == room_) cut();
    keys_.push_back(key);
    ++counts_[distance];
    ++closer_;
    while (closer_ - counts_[bound_ - 1] >= k_) closer_ -= counts_[--bound_];
  }

  // Appends the (up to) k best, in any order, and forgets all.
  void finish(std::vector<uint64_t>& keys) {
    if (keys_.size() > k_) cut();
    keys.insert(keys.end(), keys_.begin(), keys_.end());
    keys_.clear();
    std::fill(counts_.begin(), counts_.end(), 0);
    bound_ = counts_.size();
    closer_ = 0;
    last_ = UINT64_MAX;
  }

 private:
  void cut() {
    const auto last = keys_.begin() + static_cast<ptrdiff_t>(k_ - 1);
    std::nth_element(keys_.begin(), last, keys_.end());
    last_ = *last;
    keys_.resize(k_);
  }

  size_t k_, room_;
  size_t bound_;                // the least below which there are k candidates, once there are k
  size_t closer_ = 0;           // candidates below the bound
  uint64_t last_ = UINT64_MAX;  // the k-th best when the candidates were last cut
  std::vector<size_t> counts_;
  std::vector<uint64_t> keys_;
};

// Writes the first of a query's keys where the caller wants them; returns how many.
inline size_t put_keys(const std::vector<uint64_t>& keys, size_t most, int32_t* distances,
                       int64_t* positions) {
  const size_t count = std::min(keys.size(), most);
  for (size_t i = 0; i < count; ++i) {
    distances[i] = static_cast<int32_t>(key_distance(keys[i]));
    positions[i] = static_cast<int64_t>(key_position(keys[i]));
  }
  return count;
}

// One thread's way through buckets. Memory is read here and there, so all that will be read soon
// is asked for first.
class BucketReader {
 public:
  BucketReader(const Kernels& kernels, const MultiTables& tables, Control& control, size_t worker)
      : kernels_(kernels), tables_(tables), control_(control), worker_(worker),
        positions_(kRows), distances_(kRows) {}

  // Appends those buckets of a part that hold rows, and returns how many rows.
  size_t look_up(size_t part, const uint32_t* values, size_t count, std::vector<Bucket>& buckets) {
    const uint32_t* starts = tables_.starts_of(part);
    for (size_t i = 0; i < count; ++i) __builtin_prefetch(starts + values[i]);
    size_t n_rows = 0;
    for (size_t i = 0; i < count; ++i) {
      const Bucket bucket = tables_.bucket(part, values[i]);
      if (bucket.begin == bucket.end) continue;
      buckets.push_back(bucket);
      n_rows += bucket.end - bucket.begin;
    }
    control_.poll(worker_);
    return n_rows;
  }

  // take.hit(distance, row) for the rows of some buckets that are closer than take.bound(), that
  // may be found, and of which is_new(row).
  template <class Take, class IsNew>
  void visit(size_t part, const std::vector<Bucket>& buckets, const uint8_t* query, Take& take,
             IsNew&& is_new) {
    constexpr size_t kAhead = 8;  // buckets
    const uint32_t* rows = tables_.rows_of(part);
    size_t n = 0;
    for (size_t i = 0; i < buckets.size(); ++i) {
      if (i + kAhead < buckets.size()) __builtin_prefetch(rows + buckets[i + kAhead].begin);
      size_t begin = buckets[i].begin;
      while (begin < buckets[i].end) {
        const size_t some = std::min(buckets[i].end - begin, kRows - n);
        std::copy_n(rows + begin, some, positions_.data() + n);
        begin += some;
        n += some;
        if (n < kRows) break;
        compare(n, query, take, is_new);
        n = 0;
      }
    }
    compare(n, query, take, is_new);
  }

 private:
  static constexpr size_t kRows = 1024;  // compared at a time

  template <class Take, class IsNew>
  void compare(size_t n, const uint8_t* query, Take& take, IsNew& is_new) {
    control_.poll(worker_);
    int64_t largest = 0;
    for (size_t i = 0; i < n; ++i) largest = std::max(largest, positions_[i]);
    if (n > 0 && largest >= static_cast<int64_t>(tables_.codes.count)) tables_.throw_damaged();
    kernels_.gather(query, tables_.codes.data, tables_.codes.bytes, positions_.data(), n,
                    distances_.data());
    for (size_t i = 0; i < n; ++i) {
      if (distances_[i] >= take.bound()) continue;
      const size_t row = static_cast<size_t>(positions_[i]);
      if (tables_.allowed != nullptr && !tables_.allowed[row]) continue;
      if (is_new(row)) take.hit(distances_[i], row);
    }
  }

  const Kernels& kernels_;
  const MultiTables& tables_;
  Control& control_;
  size_t worker_;
  std::vector<int64_t> positions_;
  std::vector<uint16_t> distances_;
};

}  // namespace densehash
