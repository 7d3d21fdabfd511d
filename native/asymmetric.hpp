// Codes counted by a distance that is looked up byte by byte.
#pragma once

#include "search.hpp"

namespace densehash {

// The distance of a code to a query is the sum of what the query's lookups say of its bytes.
// data: (queries, bytes of a code, 256); no sum of a query reaches n_levels << shift, and that is
// at most 65536.
struct ByteLookups {
  const uint16_t* of(size_t query) const { return data + query * bytes * 256; }

  const uint16_t* data;
  size_t count, bytes;  // queries, and bytes of a code
  size_t n_levels;
  unsigned shift;  // what a sum is shifted by to be a level
};

// How many codes lie at each level, and how many of the relevant ones (nullptr: none are).
// counts: (queries, n_levels), and so are those of relevant; set to zero by the caller.
void lookup_histogram(const ByteLookups& lookups, Codes codes, const Relevant* relevant,
                      Control& control, int64_t* counts);

}  // namespace densehash
