// Queries, prepared before rows are compared.
#pragma once

#include <vector>

#include "keys.hpp"
#include "signs.hpp"

namespace densehash {

// Lookups of a query: what each value of four bits adds to its product with the decoder, in bytes
// up to 63. <s, G q> is base + step * (their sum).
struct SignLookup {
  const uint8_t* bytes;  // (bits / 4, 16)
  float step, base;
};

// Prepared queries: relative to the shift, with lookups and the distances of regions.
class SignQueries {
 public:
  SignQueries(const SignModel& model, size_t n_queries);

  // Memory of a thread while it prepares up to n queries.
  struct Work {
    Work(const SignModel& model, size_t n);
    std::vector<int32_t> sums;
    std::vector<float> products;
  };

  template <class Query>
  void prepare(const Query* queries, size_t first, size_t count, Work& work);

  const float* relative(size_t q) const { return relative_.data() + q * model_.width; }
  const int8_t* whole(size_t q) const { return whole_.data() + q * model_.padded_width; }
  float unit(size_t q) const { return units_[q]; }
  // What is added to distances of centres: |q|², or minus twice the product with the shift.
  float own(size_t q) const { return own_[q]; }
  float length(size_t q) const { return lengths_[q]; }  // of a query, if the metric is ip
  const SignLookup& lookup(size_t q) const { return lookups_[q]; }
  // The factor that scales a query to SignModel::longest; 1 if that is 0.
  float scale(size_t q) const {
    if (model_.longest == 0) return 1;
    return lengths_[q] > 0 ? model_.longest / lengths_[q] : 0;
  }
  // Keys of all regions: first the nearest ones, then the others, in any order.
  uint64_t* regions(size_t q) { return regions_.data() + q * n_regions_; }
  size_t nearest_region(size_t q) const { return RowKey::position(regions_[q * n_regions_]); }
  // The exact squared distance to a group's centre, or minus twice the product.
  float distance_to_center(size_t q, size_t group) const;

 private:
  template <class Query>
  float make_relative(const Query* query, size_t q);

  const SignModel& model_;
  size_t n_regions_;
  std::vector<float> relative_;
  std::vector<int8_t> whole_;
  std::vector<float> units_;
  std::vector<uint8_t> bytes_;  // of lookups
  std::vector<float> own_, lengths_;
  std::vector<SignLookup> lookups_;
  std::vector<uint64_t> regions_;
};

}  // namespace densehash
