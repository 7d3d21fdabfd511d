// The inner loops, as a list of functions for each instruction set. A set is one file,
// kernels_<name>.cpp, compiled with its own flags. It replaces functions in the list of the set
// before it, and dispatch.cpp names it. The rest of the library uses only these lists.
//
// All that such a file includes is in unnamed namespaces and uses no template of the standard
// library: the linker must never merge code of one instruction set into that of another.
//
// Words that have the same meaning in all files:
//   batch    queries that are answered together
//   block    neighbouring things that are processed at once; of signs, 32 entries
//   bucket   the rows of a table whose substring has one value
//   bundle   up to 64 queries of a batch that share lookups of Hamming distances
//   field    bits of a code that are looked up at once
//   group    rows near one centre, of which a query visits some
//   key      a pair as one number, by which things are sorted (keys.hpp)
//   lookup   what each value of some bits adds to a distance
//   part     bytes of a code whose lookups stay in the first-level cache together
//   quad     four queries whose sums share one word (asymmetric.cpp)
//   range    all from a begin to an end
//   rank     the place of a row in the order of ties
//   region   centres near each other
//   run      64 distances that are compared with their bounds at once
//   set      the kernels of one instruction set
//   stretch  consecutive codes of a group, or rows of a bucket
//   table    rows by the value of one substring of their codes (multi.hpp)
#pragma once

#include <cstddef>
#include <cstdint>

// For the bodies of loops, which are so many that the compiler would stop inlining them.
#define ALWAYS_INLINE inline __attribute__((always_inline))

namespace densehash {

// Distances are compared in runs of this many; a tile is padded to a whole number of runs.
constexpr size_t kRun = 64;
// The most queries in a bundle, which share lookups: a run is one code and all queries of a bundle,
// or two codes and half a bundle.
constexpr size_t kBundle = kRun;

// A run of a tile with entries below their bounds, and which these are (bit e: entry e of the run).
struct Run {
  uint32_t index;
  uint64_t mask;
};

// How one part of a code is cut into fields that are looked up, eight fields in a slot:
// field f is (bytes pick[2f], pick[2f + 1] as uint16) >> shift[f] & mask[f],
// and its entry in the lookups is at this value times the bytes of an entry, plus base[f].
struct FieldSlot {
  uint8_t pick[16];
  uint16_t shift[8];
  uint16_t mask[8];
  uint16_t base[8];
};

constexpr size_t kMaxFields = 24;
constexpr size_t kMaxSlots = kMaxFields / 8;

// How codes are cut: into parts whose lookups together fit the first-level cache, and parts into
// fields, two of which have pair_bits, so that the sum of their distances fits four bits.
struct Cut {
  size_t part_bits;
  size_t pair_bits;  // at most 15
};

// Many queries at once, by lookups (see lookups.hpp). Larger fields mean fewer fields, smaller ones
// fewer parts.
struct BundleKernels {
  size_t entry;     // bytes, for two queries each; 0: there are no such kernels
  Cut short_codes;  // up to 64 bits
  Cut long_codes;
  // Offsets of the fields of `count` codes, uint16 (count, fields); writes up to 8 more at the end.
  void (*expand)(const uint8_t* codes, size_t bytes, size_t first_byte, size_t part_bytes,
                 size_t count, const FieldSlot* slots, size_t fields, uint16_t* offsets);
  // Distances in a part, set in or added to a tile (count, queries); lookup8 saturates at 255.
  void (*lookup8)(const uint16_t* offsets, size_t fields, size_t count, const uint8_t* lookups,
                  bool add, uint8_t* tile);
  void (*lookup16)(const uint16_t* offsets, size_t fields, size_t count, const uint8_t* lookups,
                   bool add, uint16_t* tile);
  // lookup8 and below8 in one; in the tile, only the runs that are found are correct.
  size_t (*find8)(const uint16_t* offsets, size_t fields, size_t count, const uint8_t* lookups,
                  bool add, uint8_t* tile, const uint8_t* bounds, Run* runs);

  size_t queries() const { return 2 * entry; }
};

// Sketches of signs are in blocks: for every four bits, 16 bytes hold those of entry i in the low
// half of byte i, and of entry i + 16 in the high half; then come the two factors of all entries.
constexpr size_t kBlock = 32;
struct BlockFactors {
  int16_t alphas[kBlock], betas[kBlock];
};
constexpr size_t block_bytes(size_t bits) { return bits * kBlock / 8 + sizeof(BlockFactors); }

// An entry is wanted if its sum is above alpha * times_alpha + beta * times_beta + offset, where a
// product is (x * y + 2^14) >> 15 and sums saturate. The times are above -2^15.
struct SignBound {
  int16_t times_alpha, times_beta, offset;
};

// A block with wanted entries, and which (bit e: entry e).
struct SignRun {
  uint32_t block, mask;
};

// A query that looks for the wanted entries of some blocks.
constexpr size_t kSignQueries = 3;  // queries that share what they read
struct SignQuery {
  const uint8_t* lookup;  // (bits / 4, 16) of up to 63
  SignBound bound;
  uint16_t* sums;  // of blocks with wanted entries; room for all: (count, kBlock)
  SignRun* runs;   // which blocks; room for all
  size_t* found;   // how many
};

namespace {

// For kernels of one query at a time, which return how many blocks they found.
template <size_t (*SIGNS)(const uint8_t*, size_t, size_t, const uint8_t*, SignBound, uint16_t*,
                          SignRun*)>
inline void signs_of_each(const uint8_t* blocks, size_t bits, size_t count,
                          const SignQuery* queries, size_t n_queries) {
  for (const SignQuery* q = queries; q < queries + n_queries; ++q)
    *q->found = SIGNS(blocks, bits, count, q->lookup, q->bound, q->sums, q->runs);
}

}  // namespace

// The sums from which distances between vectors are computed: the squared distance, or the inner
// product and the squared length of the vector.
struct Sums {
  double sum, length;
};

// The widest vectors of bytes whose squared distances fit 32 bits.
constexpr size_t kMostSquares = 65536;

struct Kernels {
  const char* name;

  // Distances of one query to `count` codes; those of row8 modulo 256.
  void (*row8)(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count,
               uint8_t* out);
  void (*row16)(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count,
                uint16_t* out);

  // row8 that also counts, two consecutive distances at a time:
  // pairs[first + 256 * second] += 1. count is even.
  void (*count8)(const uint8_t* query, const uint8_t* codes, size_t bytes, size_t count,
                 uint8_t* out, uint32_t* pairs);

  // Distances of one query to the codes at these positions.
  void (*gather)(const uint8_t* query, const uint8_t* codes, size_t bytes,
                 const int64_t* positions, size_t count, uint16_t* out);

  // Entries of a tile below the bounds (kRun of them, repeated); returns the number of runs.
  size_t (*below8)(const uint8_t* tile, size_t n_runs, const uint8_t* bounds, Run* runs);
  size_t (*below16)(const uint16_t* tile, size_t n_runs, const uint16_t* bounds, Run* runs);

  BundleKernels whole;  // for kBundle queries
  BundleKernels half;   // for half as many; it takes more than half the time

  // Sums the lookups of up to kSignQueries queries for the entries of some blocks.
  void (*signs)(const uint8_t* blocks, size_t bits, size_t count, const SignQuery* queries,
                size_t n_queries);

  // Squared distances of the rows at these positions; width is at most kMostSquares. nullptr if a
  // loop that the compiler vectorises is as fast.
  void (*squares)(const uint8_t* query, const uint8_t* rows, size_t width, const size_t* positions,
                  size_t count, Sums* sums);

  // Products of vectors (n_vectors, width) with the rows of a matrix (count, width), sums:
  // (n_vectors, count). width is a multiple of 16, count of 8; numbers are -127 to 127, so that the
  // sum of up to 130,000 products fits.
  void (*dots)(const int8_t* vectors, size_t n_vectors, const int8_t* matrix, size_t width,
               size_t count, int32_t* sums);
};

using Squares = decltype(Kernels::squares);
using Dots = decltype(Kernels::dots);

// The fastest set that this machine runs, or the named one; nullptr if there is none.
const Kernels* find_kernels(const char* name);
// Names of the sets that this machine runs, slowest first, with nullptr at the end.
const char* const* kernel_names();

}  // namespace densehash
