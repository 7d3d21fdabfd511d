// The nearest codes in the groups that a query visits.
#pragma once

#include <cstring>
#include <stdexcept>

#include "groups.hpp"
#include "least.hpp"

namespace densehash {

// A distance and a position as one number.
inline uint64_t make_pair(size_t distance, size_t position) {
  return static_cast<uint64_t>(distance) << 32 | position;
}
inline size_t distance_of(uint64_t pair) { return pair >> 32; }

// Finds the nearest codes of one query after another. Candidates are kept in a list and counted by
// distance; the bound follows the counts, and the list is cut when it is full, and in the end.
// Unlike a Selector's, they do not come in the order of ties: all at the bound are candidates.
class Nearest {
 public:
  Nearest(const Kernels& kernels, const Groups& groups, size_t k)
      : kernels_(kernels), groups_(groups), codes_(groups.codes), bits_(codes_.bits()),
        k_(std::clamp<size_t>(k, 1, std::max<size_t>(codes_.count, 1))), counts_(bits_ + 1),
        found_(2 * k_ + kBlock), ties_(found_.size() + 1),
        tile_(2 * (kBlock + kRun) / sizeof(CacheLine)), runs_(kBlock / kRun) {}

  void find(const uint8_t* query, const int32_t* probes, size_t p, Control& control,
            size_t worker) {
    query_ = query;
    size_ = within_ = 0;
    bound_ = bits_;
    std::fill(counts_.begin(), counts_.end(), 0);
    list_parts(probes, p);
    for (size_t i = visit_first(); i < parts_.size(); ++i) {
      if (i % 64 == 63) control.poll(worker);
      visit(parts_[i]);
    }
    cut();
  }

  // What was found, in k places.
  void write(bool ordered, size_t k, int32_t* distances, int64_t* positions) {
    if (ordered) sort();
    for (size_t i = 0; i < size_; ++i) {
      distances[i] = static_cast<int32_t>(distance_of(found_[i]));
      positions[i] = static_cast<int64_t>(position_of(found_[i]));
    }
    std::fill(distances + size_, distances + k, -1);
    std::fill(positions + size_, positions + k, int64_t{-1});
  }

 private:
  // Codes that are compared at a time.
  static constexpr size_t kBlock = 4096;
  static constexpr size_t kNone8 = 255;  // in a byte: so far or farther
  typedef uint8_t Bytes16 __attribute__((vector_size(16)));

  // Some codes of a group.
  struct Part {
    size_t first, count;

    size_t n_runs() const { return (count + kRun - 1) / kRun; }
  };

  uint8_t* tile8() { return reinterpret_cast<uint8_t*>(tile_.data()); }
  uint16_t* tile16() { return tile_[0].words; }

  void list_parts(const int32_t* probes, size_t p) {
    parts_.clear();
    for (size_t i = 0; i < p; ++i) {
      const size_t group = static_cast<size_t>(read_once(probes + i));
      if (group >= groups_.count) throw std::runtime_error("a query visits a group that is not");
      const auto [begin, end] = groups_.range(group);
      for (size_t at = begin; at < end; at += kBlock)
        parts_.push_back({at, std::min(kBlock, end - at)});
    }
  }

  // Without a bound every code is a candidate. So some parts are compared, and their k-th distance
  // is found, before any code is taken. Returns how many parts were visited.
  size_t visit_first() {
    if (bits_ > 256 || groups_.allowed != nullptr) return 0;
    size_t n = 0, count = 0;
    while (n < parts_.size() && count + parts_[n].count <= kBlock) count += parts_[n++].count;
    if (count < k_) return 0;
    // Calls what(part, its distances).
    const auto for_parts = [&](auto&& what) {
      uint8_t* distances = tile8();
      for (size_t i = 0; i < n; distances += parts_[i++].count) what(parts_[i], distances);
    };
    for_parts([&](const Part& part, uint8_t* distances) { compare8(part, distances); });
    std::fill_n(tile8() + count, kRun, uint8_t{kNone8});
    if (bits_ == 256)
      for_parts([&](const Part& part, uint8_t* distances) {
        for (size_t r = find8(part, distances, 0); r-- > 0;)
          for_entries(runs_[r], part, [&](size_t e) {
            if (!is_equal(part.first + e)) distances[e] = kNone8;
          });
      });
    const size_t kth = kth_distance((count + kRun - 1) / kRun);
    if (kth >= kNone8) return 0;
    bound_ = kth;
    for_parts([&](const Part& part, uint8_t* distances) {
      take(part, distances, find8(part, distances, bound_));
    });
    return n;
  }

  void visit(const Part& part) {
    if (bits_ <= 256 && bound_ < kNone8) {
      compare8(part, tile8());
      take(part, tile8(), find8(part, tile8(), bound_));
    } else {
      kernels_.row16(query_, codes_.row(part.first), codes_.bytes, rounded(part), tile16());
      uint16_t bounds[kRun];
      std::fill_n(bounds, kRun, static_cast<uint16_t>(bound_ + 1));
      take(part, tile16(), kernels_.below16(tile16(), part.n_runs(), bounds, runs_.data()));
    }
  }

  // Up to a whole number of vectors, where there are codes: nobody looks at what is too much.
  size_t rounded(const Part& part) const {
    return std::min((part.count + 15) / 16 * 16, codes_.count - part.first);
  }

  // Of 256 bits, the distance 256 becomes 0: to be looked through by is_equal.
  void compare8(const Part& part, uint8_t* distances) {
    kernels_.row8(query_, codes_.row(part.first), codes_.bytes, rounded(part), distances);
  }

  // Whether a code at the distance 0 or 256 is at 0.
  bool is_equal(size_t position) const { return codes_.row(position)[0] == query_[0]; }

  // Finds the runs that have distances up to a bound.
  size_t find8(const Part& part, const uint8_t* distances, size_t bound) {
    uint8_t bounds[kRun];
    std::fill_n(bounds, kRun, static_cast<uint8_t>(bound + 1));
    return kernels_.below8(distances, part.n_runs(), bounds, runs_.data());
  }

  // The k-th distance in a tile, by trying: a count of bytes is cheap.
  size_t kth_distance(size_t n_runs) {
    size_t low = 0, high = kNone8;
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (count_within(n_runs, static_cast<uint8_t>(middle)) >= k_)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  size_t count_within(size_t n_runs, uint8_t bound) {
    static_assert(kBlock / kRun < 255, "counts fit a byte");
    const Bytes16 bounds = Bytes16{} + bound;
    Bytes16 counts[kRun / 16] = {};
    const uint8_t* at = tile8();
    for (size_t r = 0; r < n_runs; ++r)
      for (Bytes16& count : counts) {
        Bytes16 distances;
        std::memcpy(&distances, at, sizeof distances);
        count -= reinterpret_cast<Bytes16>(distances <= bounds);  // all ones are -1
        at += sizeof distances;
      }
    size_t sum = 0;
    for (const Bytes16& count : counts)
      for (size_t i = 0; i < sizeof count; ++i) sum += count[i];
    return sum;
  }

  // Calls what(entry) for those of a run that are of the part.
  template <class What>
  static void for_entries(const Run& run, const Part& part, What&& what) {
    const size_t first = run.index * kRun;
    uint64_t mask = run.mask;
    if (first + kRun > part.count) mask &= ~uint64_t{0} >> (first + kRun - part.count);
    for (; mask != 0; mask &= mask - 1) what(first + static_cast<size_t>(__builtin_ctzll(mask)));
  }

  template <class D>
  void take(const Part& part, const D* distances, size_t n_runs) {
    if (size_ + part.count > found_.size()) cut();
    uint32_t* const counts = counts_.data();
    const uint32_t n_zeros = counts[0];
    uint64_t* end = found_.data() + size_;
    for (size_t r = 0; r < n_runs; ++r)
      for_entries(runs_[r], part, [&](size_t e) {
        *end++ = make_pair(distances[e], part.first + e);
        ++counts[distances[e]];
      });
    size_t n = static_cast<size_t>(end - found_.data()) - size_;
    const bool are_doubtful = sizeof(D) == 1 && bits_ == 256 && counts[0] != n_zeros;
    if (are_doubtful || groups_.allowed != nullptr) n = filter(n, are_doubtful);
    size_ += n;
    within_ += n;
    while (within_ - counts_[bound_] >= k_) within_ -= counts_[bound_--];
  }

  // Of the n that were appended, keeps those that are allowed, and zeros that are no 256, if these
  // are doubtful; returns how many.
  size_t filter(size_t n, bool zeros_are_doubtful) {
    uint64_t* const begin = found_.data() + size_;
    uint64_t* kept = begin;
    for (uint64_t* at = begin; at < begin + n; ++at) {
      const size_t position = position_of(*at);
      const bool is_256 = zeros_are_doubtful && distance_of(*at) == 0 && !is_equal(position);
      if (is_256 || (groups_.allowed != nullptr && !groups_.allowed[groups_.rank(position)]))
        --counts_[distance_of(*at)];
      else
        *kept++ = *at;
    }
    return static_cast<size_t>(kept - begin);
  }

  // Keeps all below the bound, and the first by rank of those at the bound that make them k.
  void cut() {
    const size_t bound = bound_;
    uint64_t* const found = found_.data();
    uint64_t* const ties = ties_.data();
    size_t n = 0, n_ties = 0;
    for (size_t i = 0; i < size_; ++i) {  // without a branch, since it could not be foretold
      const uint64_t pair = found[i];
      found[n] = pair;
      n += distance_of(pair) < bound;
      ties[n_ties] = pair;
      n_ties += distance_of(pair) == bound;
    }
    const size_t wanted = std::min(n_ties, k_ - n);
    if (wanted < n_ties) {
      for (size_t i = 0; i < n_ties; ++i) {
        const size_t position = position_of(ties[i]);
        ties[i] = make_pair(groups_.rank(position), position);
      }
      std::nth_element(ties, ties + wanted, ties + n_ties);
    }
    for (size_t i = 0; i < wanted; ++i) found[n++] = make_pair(bound, position_of(ties[i]));
    size_ = within_ = n;
    counts_[bound] = static_cast<uint32_t>(wanted);
  }

  void sort() {
    uint64_t* const end = found_.data() + size_;
    std::sort(found_.data(), end);
    if (groups_.ranks == nullptr) return;
    order_ties(found_.data(), end, [&](size_t position) { return groups_.rank(position); });
  }

  const Kernels& kernels_;
  const Groups& groups_;
  Codes codes_;
  size_t bits_;
  size_t k_;
  const uint8_t* query_ = nullptr;
  size_t bound_ = 0;   // once there are k candidates: farther codes are none
  size_t within_ = 0;  // candidates up to the bound
  size_t size_ = 0;    // of the list
  std::vector<Part> parts_;
  std::vector<uint32_t> counts_;
  std::vector<uint64_t> found_, ties_;
  std::vector<CacheLine> tile_;
  std::vector<Run> runs_;
};

}  // namespace densehash
