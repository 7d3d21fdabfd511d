// Counts codes by a distance that is looked up byte by byte.
#pragma once

#include "search.hpp"

namespace densehash {

// The distance of a code to a query is the sum of the query's lookups for its bytes.
// data: (queries, bytes of a code, 256). All sums of a query are below n_levels << shift, which is
// at most 65536.
struct ByteLookups {
  const uint16_t* of(size_t query) const { return data + query * bytes * 256; }

  const uint16_t* data;
  size_t count, bytes;  // queries, and bytes of a code
  size_t n_levels;
  unsigned shift;  // a sum shifted right by this is a level
};

// Counts the codes at each level, and the relevant ones among them (nullptr: there are none).
// counts, also those of relevant: (queries, n_levels); the caller has set them to zero.
void lookup_histogram(const ByteLookups& lookups, Codes codes, const Relevant* relevant,
                      Control& control, int64_t* counts);

}  // namespace densehash
