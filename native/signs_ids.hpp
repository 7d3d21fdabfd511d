// Ids of rows, by which rows of equal distance are ordered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace densehash {

struct Text {
  const char* bytes;  // in UTF-8
  size_t size;
};

// Ids of the rows of a segment: numbers, or strings that are filled with zeros to one width.
struct Ids {
  // Whether the id of row i comes before the id of row j of others.
  bool is_before(size_t i, const Ids& others, size_t j) const {
    if (numbers != nullptr) return numbers[i] < others.numbers[j];
    const uint8_t *const x = bytes + i * width, *const y = others.bytes + j * others.width;
    const size_t common = std::min(width, others.width);
    const int order = std::memcmp(x, y, common);
    if (order != 0) return order < 0;
    return std::any_of(y + common, y + others.width, [](uint8_t byte) { return byte != 0; });
  }

  Text text(size_t row) const {
    const uint8_t* const from = bytes + row * width;
    size_t size = width;
    while (size > 0 && from[size - 1] == 0) --size;
    return {reinterpret_cast<const char*>(from), size};
  }

  const int64_t* numbers;  // (rows,), or nullptr
  const uint8_t* bytes;    // (rows, width), or nullptr
  size_t width;
  size_t n_rows;
};

// Ids of all segments. A position counts rows over all segments.
class AllIds {
 public:
  void add(const Ids& ids) {
    if (!parts_.empty()) {
      const Ids& before = parts_.back();
      rises_ = rises_ && before.n_rows > 0 && ids.n_rows > 0 &&
               before.is_before(before.n_rows - 1, ids, 0);
    }
    parts_.push_back(ids);
    n_rows_ += ids.n_rows;
  }

  size_t n_rows() const { return n_rows_; }
  bool are_strings() const { return !parts_.empty() && parts_[0].bytes != nullptr; }
  // Whether all ids of each segment come before those of the next.
  bool rise() const { return rises_; }

  bool is_before(int64_t position, int64_t other) const {
    const Place x = place_of(position), y = place_of(other);
    return parts_[x.part].is_before(x.row, parts_[y.part], y.row);
  }
  int64_t number(int64_t position) const {
    const Place place = place_of(position);
    return parts_[place.part].numbers[place.row];
  }
  Text text(int64_t position) const {
    const Place place = place_of(position);
    return parts_[place.part].text(place.row);
  }

 private:
  struct Place {
    size_t part, row;
  };
  Place place_of(int64_t position) const {
    size_t part = 0, row = static_cast<size_t>(position);
    for (; row >= parts_[part].n_rows; ++part) row -= parts_[part].n_rows;
    return {part, row};
  }

  std::vector<Ids> parts_;
  size_t n_rows_ = 0;
  bool rises_ = true;
};

}  // namespace densehash
