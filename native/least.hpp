// The k least of some numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "keys.hpp"

namespace densehash {

// An array that is not set to zeros, unlike a std::vector.
template <class T>
class Array {
 public:
  explicit Array(size_t n) : values_(new T[n]) {}
  T* data() { return values_.get(); }
  T& operator[](size_t i) { return values_[i]; }

 private:
  std::unique_ptr<T[]> values_;
};

// Finds the k least of up to n floats, again and again.
class Least {
 public:
  Least(size_t n, size_t k)  // k is at least 1
      : k_(k), lanes_(std::min((2 * k + 15) / 16 * 16, n)), floats_(n), least_(lanes_),
        keys_(n + 1) {}

  // Sets the keys of the k least of number(0) ... number(n - 1), which are floats or sortable
  // integers, and of all others up to more(an upper bound of the k-th). Returns how many.
  template <class Number, class More>
  size_t find(size_t n, Number&& number, More&& more) {
    int32_t* const floats = floats_.data();
    uint64_t* const keys = keys_.data();
    for (size_t i = 0; i < n; ++i) floats[i] = as_sortable(number(i));
    int32_t bound = std::numeric_limits<int32_t>::max();
    if (k_ < n) bound = sortable(more(from_sortable(bound_of_kth(n))));
    size_t found = 0;
    constexpr size_t kTogether = 16;
    for (size_t first = 0; first < n; first += kTogether) {
      const size_t end = std::min(first + kTogether, n);
      if (end - first == kTogether) {  // most contain none
        int32_t is_near = 0;
        for (size_t i = 0; i < kTogether; ++i) is_near |= floats[first + i] <= bound ? -1 : 0;
        if (is_near == 0) continue;
      }
      for (size_t i = first; i < end; ++i) {  // no branch, because it would be unpredictable
        keys[found] = make_float_key(floats[i], i);
        found += floats[i] <= bound;
      }
    }
    return found;
  }

  uint64_t* keys() { return keys_.data(); }

 private:
  static int32_t as_sortable(float x) { return sortable(x); }
  static int32_t as_sortable(int32_t sorted) { return sorted; }

  // An upper bound of the k-th. The floats are divided into lanes; the k-th of the least of each
  // lane is only a little above the k-th of all.
  int32_t bound_of_kth(size_t n) {
    const size_t lanes = std::min(lanes_, n);
    int32_t* const least = least_.data();
    std::copy_n(floats_.data(), lanes, least);
    for (size_t first = lanes; first < n; first += lanes) {
      const int32_t* const from = floats_.data() + first;
      const size_t count = std::min(lanes, n - first);
      for (size_t i = 0; i < count; ++i) least[i] = std::min(least[i], from[i]);
    }
    std::nth_element(least, least + k_ - 1, least + lanes);
    return least[k_ - 1];
  }

  size_t k_, lanes_;
  Array<int32_t> floats_, least_;
  Array<uint64_t> keys_;
};

}  // namespace densehash
