// The k smallest (distance, position) of a stream whose positions rise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace densehash {

// A pair as one number: ordered by distance, then by position (48 bits of it).
inline uint64_t make_key(size_t distance, size_t position) {
  return static_cast<uint64_t>(distance) << 48 | position;
}
inline size_t key_distance(uint64_t key) { return key >> 48; }
inline size_t key_position(uint64_t key) { return key & ((uint64_t{1} << 48) - 1); }

// Keeps candidates in a buffer and counts them by distance. The bound follows the counts at
// once, so that in any order of the codes at most k of each distance are taken; the buffer is
// cut only when it is full. No heap: its cost does not depend on the order.
class Selector {
 public:
  Selector(size_t k, size_t bits) : Selector(k, bits, bits + 1) {}
  // Candidates at `bound` or farther are not needed from the beginning.
  Selector(size_t k, size_t bits, size_t bound)
      : k_(k), bound_(bound), counts_(bits + 1), keys_(2 * k < 64 ? 64 : 2 * k) {}

  // Candidates at this distance or farther are not needed any more.
  size_t bound() const { return bound_; }

  void push(size_t distance, size_t position) {  // distance < bound()
    if (size_ == keys_.size()) cut();
    keys_[size_++] = make_key(distance, position);
    ++counts_[distance];
    if (++closer_ < k_) return;
    do closer_ -= counts_[--bound_];
    while (closer_ >= k_);
  }

  // Appends the (up to) k best, in order of position.
  void finish(std::vector<uint64_t>& keys) {
    cut();
    keys.insert(keys.end(), keys_.begin(), keys_.begin() + static_cast<ptrdiff_t>(size_));
  }

 private:
  // Keeps all below the bound, and the first at the bound that make them k.
  void cut() {
    size_t kept = 0, at_bound = k_ - closer_;
    for (size_t i = 0; i < size_; ++i) {
      const uint64_t key = keys_[i];
      const size_t distance = key_distance(key);
      if (distance > bound_) continue;
      if (distance == bound_) {
        if (at_bound == 0) continue;
        --at_bound;
      }
      keys_[kept++] = key;
    }
    size_ = kept;
  }

  size_t k_;
  size_t bound_;       // k or more candidates lie at bound or closer, once there are k
  size_t closer_ = 0;  // candidates below the bound; fewer than k
  size_t size_ = 0;
  std::vector<uint32_t> counts_;
  std::vector<uint64_t> keys_;
};

}  // namespace densehash
