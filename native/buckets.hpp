// Compares rows of buckets with a query.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "multi.hpp"

namespace densehash {

// Reads buckets in one thread. Reads are scattered over memory, so all that will be read soon is
// fetched first.
class BucketReader {
 public:
  BucketReader(const Kernels& kernels, const MultiTables& tables, Control& control, size_t worker)
      : kernels_(kernels), tables_(tables), control_(control), worker_(worker), positions_(kRows),
        distances_(kRows) {}

  // Appends the buckets of these values that have rows, and returns how many rows they have.
  size_t look_up(size_t table, const uint32_t* values, size_t count,
                 std::vector<Bucket>& buckets) {
    const uint32_t* starts = tables_.starts_of(table);
    for (size_t i = 0; i < count; ++i) __builtin_prefetch(starts + values[i]);
    size_t n_rows = 0;
    for (size_t i = 0; i < count; ++i) {
      const Bucket bucket = tables_.bucket(table, values[i]);
      if (bucket.begin == bucket.end) continue;
      buckets.push_back(bucket);
      n_rows += bucket.end - bucket.begin;
    }
    control_.poll(worker_);
    return n_rows;
  }

  // Calls take.hit(distance, row) for the rows of some buckets that are closer than take.bound(),
  // may be found, and for which is_new(row) is true.
  template <class Take, class IsNew>
  void visit(size_t table, const std::vector<Bucket>& buckets, const uint8_t* query, Take& take,
             IsNew&& is_new) {
    constexpr size_t kAhead = 8;  // buckets
    const uint32_t* rows = tables_.rows_of(table);
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
  static constexpr size_t kRows = 1024;  // rows compared at a time

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
