#include "multi.hpp"

#include <algorithm>
#include <utility>

namespace densehash {

Substrings::Substrings(size_t n_bits, size_t bytes, size_t count) : bytes_(bytes) {
  if (count == 0 || count > n_bits || n_bits > count * kMostBits || n_bits > 8 * bytes)
    MultiTables::throw_damaged();
  size_t first = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t bits = n_bits / count + (i < n_bits % count);
    const size_t byte = bytes < 8 ? 0 : std::min(first / 8, bytes - 8);
    parts_.push_back({byte, static_cast<unsigned>(first - 8 * byte), static_cast<unsigned>(bits),
                      (uint32_t{1} << bits) - 1, n_entries_});
    n_entries_ += (size_t{1} << bits) + 1;
    first += bits;
  }
}

namespace {

// From how many there are of each value to where the first of them goes.
void add_up(uint32_t* counts, size_t n_values) {
  uint32_t sum = 0;
  for (size_t v = 0; v < n_values; ++v) sum += std::exchange(counts[v], sum);
}

}  // namespace

// Twice sorted by counting: by the next part, then by the part.
void build_tables(const Substrings& substrings, Codes codes, Control& control, uint32_t* starts,
                  uint32_t* rows) {
  constexpr size_t kBlock = 4096;  // codes between looks for an interrupt
  struct Entry {
    uint32_t value, row;
  };
  control.run(control.n_threads(), substrings.count(), [&](size_t part, size_t worker) {
    const size_t next = (part + 1) % substrings.count();
    const auto for_each_row = [&](auto&& see) {
      for (size_t first = 0; first < codes.count; first += kBlock) {
        control.poll(worker);
        const size_t end = std::min(first + kBlock, codes.count);
        for (size_t row = first; row < end; ++row) see(row);
      }
    };
    const auto value = [&](size_t row, size_t of) { return substrings.value(codes.row(row), of); };

    const size_t n_values = substrings.n_values(part);
    uint32_t* places = starts + substrings.first_entry(part);
    std::vector<uint32_t> next_places(substrings.n_values(next));
    std::fill(places, places + n_values + 1, 0);
    for_each_row([&](size_t row) {
      ++places[value(row, part)];
      ++next_places[value(row, next)];
    });
    add_up(places, n_values);
    add_up(next_places.data(), next_places.size());
    std::vector<Entry> entries(codes.count);
    for_each_row([&](size_t row) {
      entries[next_places[value(row, next)]++] = {value(row, part), static_cast<uint32_t>(row)};
    });
    uint32_t* of_part = rows + part * codes.count;
    for_each_row([&](size_t i) { of_part[places[entries[i].value]++] = entries[i].row; });
    // Each is now where the next value begins.
    std::copy_backward(places, places + n_values, places + n_values + 1);
    places[0] = 0;
  });
}

}  // namespace densehash
