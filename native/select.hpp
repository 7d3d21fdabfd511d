// The k nearest codes of a stream, by (distance, position).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "keys.hpp"

namespace densehash {

// The order of positions in a stream. If they ascend, further candidates at the k-th distance come
// too late.
enum class Stream { rising, any };

// The distance from which on candidates are not needed. It counts candidates by distance, and falls
// as soon as the counts allow it, whatever the order of distances.
template <Stream STREAM>
class CountedBound {
 public:
  CountedBound(size_t k, size_t bits) : CountedBound(k, bits, bits + 1) {}
  // Candidates at `start` or farther are not needed from the beginning.
  CountedBound(size_t k, size_t bits, size_t start) : k_(k), value_(start), counts_(bits + 1) {}

  // Candidates at this distance or farther are not needed any more.
  size_t value() const { return value_; }
  size_t n_closer() const { return n_closer_; }

  void add(size_t distance) {
    ++counts_[distance];
    add_counted(1);
  }
  // The same for candidates that the caller has added to counts().
  uint32_t* counts() { return counts_.data(); }
  void add_counted(size_t n) {
    n_closer_ += n;
    // Falls to the k-th distance if positions ascend, otherwise to the one after it.
    while (n_closer_ - (STREAM == Stream::rising ? 0 : n_last()) >= k_)
      n_closer_ -= counts_[--value_];
  }

  // If a bound is known before there are candidates.
  void set(size_t value) { value_ = value; }

  // Only n candidates are left at the last distance below the bound.
  void keep_last(size_t n) {
    n_closer_ -= n_last() - n;
    counts_[value_ - 1] = static_cast<uint32_t>(n);
  }

  void clear() {
    std::fill(counts_.begin(), counts_.end(), 0);
    value_ = counts_.size();
    n_closer_ = 0;
  }

 private:
  size_t n_last() const { return counts_[value_ - 1]; }  // at the last distance below the value

  size_t k_;
  size_t value_;
  size_t n_closer_ = 0;  // candidates below the value
  std::vector<uint32_t> counts_;
};

// Keeps candidates in a buffer that is cut only when it is full. Unlike with a heap, the cost does
// not depend on the order.
template <Stream STREAM>
class NearestCodes {
 public:
  NearestCodes(size_t k, size_t bits) : NearestCodes(k, bits, bits + 1) {}
  // Candidates at `start` or farther are not needed from the beginning.
  NearestCodes(size_t k, size_t bits, size_t start)
      : k_(k), bound_(k, bits, start), keys_(std::max<size_t>(2 * k, 64)) {}

  // Candidates at this distance or farther are not needed any more.
  size_t bound() const { return bound_.value(); }

  // Whether there are k candidates up to this distance.
  bool is_complete(size_t distance) const {
    return bound_.value() <= distance + 1 && bound_.n_closer() >= k_;
  }

  void hit(size_t distance, size_t position) {  // distance < bound()
    const uint64_t key = HammingKey::make(distance, position);
    if (STREAM == Stream::any && key > last_) return;
    if (size_ == keys_.size()) cut();
    keys_[size_++] = key;
    bound_.add(distance);
  }

  // Appends the (up to) k nearest and clears this. If positions ascend, they are in order of
  // position.
  void finish(std::vector<uint64_t>& keys) {
    if (size_ > k_) cut();
    keys.insert(keys.end(), keys_.begin(), keys_.begin() + static_cast<ptrdiff_t>(size_));
    size_ = 0;
    last_ = UINT64_MAX;
    bound_.clear();
  }

 private:
  // Keeps the k nearest.
  __attribute__((noinline)) void cut() {
    if constexpr (STREAM == Stream::any) {
      const auto last = keys_.begin() + static_cast<ptrdiff_t>(k_ - 1);
      std::nth_element(keys_.begin(), last, keys_.begin() + static_cast<ptrdiff_t>(size_));
      last_ = *last;
      size_ = k_;
    } else {  // all below the bound, and then the first at the bound, up to k
      size_t kept = 0, at_bound = k_ - bound_.n_closer();
      for (size_t i = 0; i < size_; ++i) {
        const uint64_t key = keys_[i];
        const size_t distance = HammingKey::first(key);
        if (distance > bound()) continue;
        if (distance == bound()) {
          if (at_bound == 0) continue;
          --at_bound;
        }
        keys_[kept++] = key;
      }
      size_ = kept;
    }
  }

  size_t k_, size_ = 0;
  uint64_t last_ = UINT64_MAX;  // the k-th when the candidates were last cut
  CountedBound<STREAM> bound_;
  std::vector<uint64_t> keys_;
};

// Writes the first keys of a query to arrays of distances and positions.
inline void put_keys(const std::vector<uint64_t>& keys, size_t most, int32_t* distances,
                     int64_t* positions) {
  const size_t count = std::min(keys.size(), most);
  for (size_t i = 0; i < count; ++i) {
    distances[i] = static_cast<int32_t>(HammingKey::first(keys[i]));
    positions[i] = static_cast<int64_t>(HammingKey::position(keys[i]));
  }
}

}  // namespace densehash
