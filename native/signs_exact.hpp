// Distances that are better than estimates by signs: by vectors, or by the second sketch.
#pragma once

#include <memory>
#include <vector>

#include "signs.hpp"

namespace densehash {

// Distances of rows of a segment to one query after another; a row comes with one of its entries.
class Exact {
 public:
  virtual ~Exact() = default;
  virtual void start(size_t query) = 0;
  virtual float distance(size_t row, size_t entry) const = 0;
  virtual void fetch(size_t row) const = 0;
};

// One for each segment; nullptr if it has neither vectors nor a second sketch. Keeps pointers to
// its arguments.
using Exacts = std::vector<std::unique_ptr<Exact>>;
template <class Query>
Exacts exacts_of(const SignModel& model, const std::vector<SignSegment>& segments,
                 const Query* queries);

}  // namespace densehash
