// Counts how many codes are at each distance of some queries.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels.hpp"
#include "parallel.hpp"
#include "scan.hpp"

namespace densehash {

// The counts of one thread. Counting is limited by loads and stores, so distances in bytes are
// counted two at a time, as pairs, if the pairs are few enough and the codes many enough.
class Counter {
 public:
  Counter(const Kernels& kernels, Codes queries, Codes codes)
      : kernels_(kernels), queries_(queries), codes_(codes), width_(codes.bits() + 1),
        counts_(queries.count * width_), row_(kMostCodes) {
    if (!counts_pairs(codes)) return;
    pairs_.resize(queries.count * pairs_a_query());
    n_pairs_.resize(queries.count);
  }

  // Memory for a query.
  static size_t bytes_a_query(const Codes& codes) {
    const size_t of_pairs = counts_pairs(codes) ? 256 * sizeof(uint32_t) : 0;
    return (codes.bits() + 1) * (sizeof(int64_t) + of_pairs);
  }

  // Counts the codes [begin, end) in blocks, and calls see(query, distances, first code, count) for
  // each.
  template <class See>
  void visit(size_t begin, size_t end, Control& control, size_t worker, See&& see) {
    const size_t block = std::clamp<size_t>(kBlockBytes / codes_.bytes, 512, kMostCodes);
    for (size_t first = begin; first < end; first += block) {
      control.poll(worker);
      const size_t n = std::min(block, end - first);
      for (size_t q = 0; q < queries_.count; ++q) {
        if (codes_.bits() < 256) {
          uint8_t* row = reinterpret_cast<uint8_t*>(row_.data());
          const size_t done = add_pairs(q, first, n, row);
          kernels_.row8(queries_.row(q), codes_.row(first + done), codes_.bytes, n - done,
                        row + done);
          add(q, row + done, n - done);
          see(q, row, first, n);
        } else {
          kernels_.row16(queries_.row(q), codes_.row(first), codes_.bytes, n, row_.data());
          add(q, row_.data(), n);
          see(q, row_.data(), first, n);
        }
      }
    }
  }

  // (queries, bits + 1); complete.
  std::vector<int64_t>& counts() {
    for (size_t query = 0; query < n_pairs_.size(); ++query) fold(query);
    return counts_;
  }

 private:
  // Of a block: large enough that loading a query's counts of pairs into the first-level cache
  // pays, small enough that the codes stay in the second-level cache.
  static constexpr size_t kBlockBytes = 262144;
  static constexpr size_t kMostCodes = 32768;

  static bool counts_pairs(const Codes& codes) {
    return codes.bits() <= 96 && codes.count >= 65536;
  }
  size_t pairs_a_query() const { return width_ * 256; }

  // Compares codes and counts them in pairs; returns how many.
  size_t add_pairs(size_t query, size_t first, size_t n, uint8_t* row) {
    if (pairs_.empty()) return 0;
    n -= n % 2;
    if (n_pairs_[query] + n / 2 > UINT32_MAX) fold(query);
    n_pairs_[query] += n / 2;
    kernels_.count8(queries_.row(query), codes_.row(first), codes_.bytes, n, row,
                    pairs_.data() + query * pairs_a_query());
    return n;
  }

  template <class D>
  void add(size_t query, const D* distances, size_t n) {
    int64_t* of_query = counts_.data() + query * width_;
    for (size_t i = 0; i < n; ++i) ++of_query[distances[i]];
  }

  // Adds the counts of pairs to the counts.
  void fold(size_t query) {
    uint32_t* row = pairs_.data() + query * pairs_a_query();
    int64_t* of_query = counts_.data() + query * width_;
    for (size_t second = 0; second < width_; ++second, row += 256) {
      int64_t sum = 0;
      for (size_t first = 0; first < width_; ++first) sum += row[first];
      if (sum == 0) continue;  // most are
      for (size_t first = 0; first < width_; ++first) of_query[first] += row[first];
      of_query[second] += sum;
      std::memset(row, 0, width_ * sizeof *row);
    }
    n_pairs_[query] = 0;
  }

  const Kernels& kernels_;
  Codes queries_, codes_;
  size_t width_;
  std::vector<int64_t> counts_;
  std::vector<uint32_t> pairs_;  // (queries, width, 256): at [query, second, first]
  std::vector<size_t> n_pairs_;  // since the last fold
  std::vector<uint16_t> row_;    // distances of one query to a block
};

}  // namespace densehash
