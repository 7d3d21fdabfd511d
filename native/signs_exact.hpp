// Distances by more than signs: by the vectors of a segment, or by its second sketch.
#pragma once

#include <memory>
#include <vector>

#include "signs.hpp"

namespace densehash {

// Distances of the rows of a segment, each with one of its entries, to one query after another.
class Exact {
 public:
  virtual ~Exact() = default;
  virtual void start(size_t query) = 0;
  virtual float distance(size_t row, size_t entry) const = 0;
  virtual void fetch(size_t row) const = 0;
};

// One for each segment; nullptr where it has neither vectors nor a second sketch. Keeps pointers
// to what is given.
using Exacts = std::vector<std::unique_ptr<Exact>>;
template <class Query>
Exacts exacts_of(const SignModel& model, const std::vector<SignSegment>& segments,
                 const Query* queries);

}  // namespace densehash
