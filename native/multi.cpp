#include "multi.hpp"

#include <algorithm>
#include <utility>

#include "keys.hpp"

namespace densehash {

Substrings::Substrings(size_t n_bits, size_t bytes, size_t count) : bytes_(bytes) {
  if (count == 0 || count > n_bits || n_bits > count * kMostBits || n_bits > 8 * bytes)
    MultiTables::throw_damaged();
  size_t first = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t bits = n_bits / count + (i < n_bits % count);
    const size_t byte = bytes < 8 ? 0 : std::min(first / 8, bytes - 8);
    substrings_.push_back({byte, static_cast<unsigned>(first - 8 * byte),
                           static_cast<unsigned>(bits), (uint32_t{1} << bits) - 1, n_entries_});
    n_entries_ += (size_t{1} << bits) + 1;
    first += bits;
  }
}

namespace {

constexpr size_t kRows = 4096;  // between two checks for an interrupt

// Builds one table: sorts rows by counting, and then each bucket by the next substring.
class TableBuilder {
 public:
  TableBuilder(const Substrings& substrings, Codes codes, size_t table, Control& control,
               size_t worker)
      : substrings_(substrings), codes_(codes), table_(table),
        next_((table + 1) % substrings.count()), control_(control), worker_(worker) {}

  void build(uint32_t* starts, uint32_t* rows) {
    const size_t n_values = substrings_.n_values(table_);
    std::fill(starts, starts + n_values + 1, 0);
    for_each_row([&](size_t row) { ++starts[value(row, table_)]; });
    uint32_t sum = 0;  // replaces each count by the place of the first row
    for (size_t v = 0; v < n_values; ++v) sum += std::exchange(starts[v], sum);
    for_each_row([&](size_t row) {
      const size_t place = starts[value(row, table_)]++;
      if (place >= codes_.count) throw_changed();
      rows[place] = static_cast<uint32_t>(row);
    });
    // Now each is the start of the next, if there were as many of each value as were counted.
    if (!std::is_sorted(starts, starts + n_values)) throw_changed();
    if (starts[n_values - 1] != codes_.count) throw_changed();
    std::copy_backward(starts, starts + n_values, starts + n_values + 1);
    starts[0] = 0;
    if (next_ == table_) return;
    for (size_t v = 0, first = 0; v < n_values; ++v) {
      // Several buckets at a time, so that their codes are fetched from memory together.
      if (starts[v + 1] - starts[first] < kRows && v + 1 < n_values) continue;
      sort_buckets(starts + first, v + 1 - first, rows);
      first = v + 1;
    }
  }

 private:
  uint32_t value(size_t row, size_t table) const {
    return substrings_.value(codes_.row(row), table);
  }

  [[noreturn]] static void throw_changed() {
    throw std::runtime_error("codes were changed while tables were made of them");
  }

  template <class See>
  void for_each_row(See&& see) {
    for (size_t first = 0; first < codes_.count; first += kRows) {
      control_.poll(worker_);
      const size_t end = std::min(first + kRows, codes_.count);
      for (size_t row = first; row < end; ++row) see(row);
    }
  }

  void sort_buckets(const uint32_t* starts, size_t count, uint32_t* rows) {
    control_.poll(worker_);
    const size_t begin = starts[0], n = starts[count] - begin;
    keys_.resize(n);
    for (size_t i = 0; i < n; ++i)
      keys_[i] = RowKey::make(value(rows[begin + i], next_), rows[begin + i]);
    for (size_t v = 0; v < count; ++v) {
      uint64_t* of_bucket = keys_.data() + (starts[v] - begin);
      uint64_t* end = keys_.data() + (starts[v + 1] - begin);
      if (!std::is_sorted(of_bucket, end)) std::sort(of_bucket, end);
    }
    for (size_t i = 0; i < n; ++i)
      rows[begin + i] = static_cast<uint32_t>(RowKey::position(keys_[i]));
  }

  const Substrings& substrings_;
  Codes codes_;
  size_t table_, next_;
  Control& control_;
  size_t worker_;
  std::vector<uint64_t> keys_;
};

}  // namespace

void build_tables(const Substrings& substrings, Codes codes, Control& control, uint32_t* starts,
                  uint32_t* rows) {
  control.run(control.n_threads(), substrings.count(), [&](size_t table, size_t worker) {
    TableBuilder(substrings, codes, table, control, worker)
        .build(starts + substrings.first_entry(table), rows + table * codes.count);
  });
}

}  // namespace densehash
