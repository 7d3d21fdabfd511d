// Centres of groups in whole numbers, and the nearest of them.
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

  size_t padded_width = 0;      // to a multiple of 16
  std::vector<int8_t> numbers;  // (count to a multiple of 8, padded_width)
  std::vector<float> steps;     // what 1 stands for in each of these rows
  std::vector<float> squares;   // squared lengths; zeros for the metric ip
};

// Centres in whole numbers, by which queries find the nearest: first regions of near centres, then
// the centres in the nearest of these.
struct WholeCenters {
  WholeCenters() = default;
  WholeCenters(const float* centers, size_t count, size_t width, Metric metric);

  struct Region {
    uint32_t first, count;  // its places, from a multiple of 8 on
  };
  size_t largest() const;  // of a region, with what fills it up to a multiple of 8
  // How many regions a search begins with: all of few, a third of some, a fifth of many. The
  // product with a mean says little of those with the centres, so that for the metric ip it is
  // all.
  size_t looked_at_first() const;

  Metric metric = Metric::l2;
  size_t count = 0;
  WholeRows means;  // of regions
  std::vector<Region> regions;
  std::vector<uint32_t> near;    // (regions, as many for each): regions near each one
  WholeRows centers;             // by place
  std::vector<uint32_t> groups;  // by place: the number of a centre
};

// A sortable squared distance less |q|², or minus twice the product, by whole numbers; `unit` is
// what 1 stands for in the query.
inline int32_t whole_distance(const WholeRows& rows, size_t row, float unit, int32_t sum) {
  return sortable_number(rows.squares[row] - 2 * unit * rows.steps[row] * static_cast<float>(sum));
}

// The nearest centre of every row by its squared distance, the first of several equally near;
// nearly always: those in far regions are not looked at. rows: (count, width), out: (count,).
void nearest_centers(const WholeCenters& wholes, const float* centers, size_t width,
                     const float* rows, size_t count, Control& control, uint32_t* out);

}  // namespace densehash
