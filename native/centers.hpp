// Centres of groups in whole numbers, and the search for the nearest of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "least.hpp"
#include "parallel.hpp"
#include "rerank.hpp"

namespace densehash {

// Vectors in whole numbers.
struct WholeRows {
  WholeRows() = default;
  WholeRows(size_t count, size_t width);
  void set(size_t row, const float* vector, size_t width, Metric metric);

  size_t padded_width = 0;      // width up to a multiple of 16
  std::vector<int8_t> numbers;  // (count up to a multiple of 8, padded_width)
  std::vector<float> steps;     // the value of 1 in each of these rows
  std::vector<float> squares;   // squared lengths; zeros for the metric ip
};

// Centres in whole numbers, in which queries find the nearest: first the nearest regions of
// centres, then the nearest centres in them.
struct WholeCenters {
  WholeCenters() = default;
  WholeCenters(const float* centers, size_t count, size_t width, Metric metric);

  struct Region {
    uint32_t first, count;  // its places; the first is a multiple of 8
  };
  size_t largest() const;  // size of the largest region, up to a multiple of 8
  // With how many regions a search begins: all if they are few, a third of some, a fifth of many.
  // All for the metric ip, because the product with a mean says little about the products with the
  // centres.
  size_t looked_at_first() const;

  Metric metric = Metric::l2;
  size_t count = 0;
  WholeRows means;  // of regions
  std::vector<Region> regions;
  std::vector<uint32_t> near;    // (regions, equally many): the regions near each one
  WholeRows centers;             // by place
  std::vector<uint32_t> groups;  // by place: the number of a centre
};

// A sortable squared distance minus |q|², or minus twice the product, from whole numbers; `unit` is
// the value of 1 in the query.
inline int32_t whole_distance(const WholeRows& rows, size_t row, float unit, int32_t sum) {
  return sortable_number(rows.squares[row] - 2 * unit * rows.steps[row] * static_cast<float>(sum));
}

// The nearest centre of every row by squared distance; the first if several are equally near. It
// may rarely miss the nearest, because centres in far regions are not compared. rows: (count,
// width), out: (count,).
void nearest_centers(const WholeCenters& wholes, const float* centers, size_t width,
                     const float* rows, size_t count, Control& control, uint32_t* out);

}  // namespace densehash
