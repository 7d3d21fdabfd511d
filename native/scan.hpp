// Computes distances of a batch of queries to a range of codes, one tile at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels.hpp"
#include "parallel.hpp"

namespace densehash {

struct Codes {
  const uint8_t* data;
  size_t count;
  size_t bytes;

  size_t bits() const { return 8 * bytes; }
  const uint8_t* row(size_t i) const { return data + i * bytes; }
};

// Distances of `n_queries` queries to `count` codes; entry (code, query) is at code * lanes +
// query.
template <class D>
struct Tile {
  const D* distances;
  size_t lanes;  // 1, or the queries of a bundle
  size_t first_query, n_queries;
  size_t first_code, count;

  size_t n_runs() const { return (count * lanes + kRun - 1) / kRun; }
};

// How codes are cut into parts and fields for the lookups of one instruction set.
struct Layout {
  struct Part {
    size_t first_byte, bytes, fields, lookup_bytes;
    uint8_t widths[kMaxFields];  // of the fields, in bits
    FieldSlot slots[kMaxSlots];
  };
  struct Parts {
    Parts(const BundleKernels& kernels, size_t bytes);

    const BundleKernels& kernels;
    std::vector<Part> parts;  // empty if there are no such kernels
    size_t fields = 0;        // of all parts
    size_t lookup_bytes = 0;  // of all parts, for one bundle of queries
  };

  Layout(const Kernels& kernels, size_t bytes)
      : whole(kernels.whole, bytes), half(kernels.half, bytes) {}

  Parts whole, half;
};

// Memory for bytes or for words of 16 bits.
struct alignas(64) CacheLine {
  uint16_t words[32];
};

// A batch of queries, ready to be compared with codes. Shared by all threads.
class Batch {
 public:
  Batch(const Kernels& kernels, const Layout& layout, Codes queries);

  // How many queries one batch may have, so that its lookups stay in the second-level cache.
  static size_t most_queries(const Layout& layout);

  size_t n_queries() const { return queries_.count; }
  size_t bits() const { return queries_.bits(); }

 private:
  friend class Scan;
  // Bundles of one size.
  struct Bundles {
    const Layout::Parts& layout;
    size_t first_query = 0, count = 0;
    size_t first_lookup = 0;  // in bytes

    size_t queries() const { return layout.kernels.queries(); }
    size_t end_query() const { return first_query + count * queries(); }
    size_t end_lookup() const { return first_lookup + count * layout.lookup_bytes; }
  };
  void fill_lookups(const Bundles& bundles);

  const Kernels& kernels_;
  Codes queries_;
  Bundles whole_, half_;            // the queries after them are compared one by one
  std::vector<CacheLine> lookups_;  // bytes, bundle by bundle, part by part
};

// The scan of one thread through codes, for near ones.
class Scan {
 public:
  Scan(const Batch& batch, Control& control, size_t worker);

  // Calls visit.hit(query, distance, code) for the codes in [begin, end) that are closer than
  // visit.bound(query), in ascending order for each query. The bound may fall, but it is read only
  // once per block, so visit.hit must check again.
  template <class Visit>
  void visit_below(const Codes& codes, size_t begin, size_t end, Visit&& visit) {
    const Kernels& kernels = batch_.kernels_;
    for_blocks(begin, end, [&](size_t first, size_t count) {
      for (const Bundles* bundles : {&batch_.whole_, &batch_.half_}) {
        if (bundles->count == 0) continue;
        expand(*bundles, codes.row(first), count);
        for (size_t bundle = 0; bundle < bundles->count; ++bundle)
          visit_bundle(*bundles, bundle, first, count, visit);
      }
      for (size_t q = batch_.half_.end_query(); q < batch_.n_queries(); ++q) {
        const size_t bound = visit.bound(q);
        if (fits_byte_ || (wraps_ && bound < 256)) {
          const auto tile = row_tile(kernels.row8, codes, q, first, count, tile8());
          uint8_t bounds[kRun];
          std::fill_n(bounds, kRun, static_cast<uint8_t>(bound));
          const size_t n_runs = kernels.below8(tile8(), tile.n_runs(), bounds, runs_.data());
          Unwrapped<Visit> unwrapped{visit, codes, batch_.queries_, wraps_};
          report(tile, n_runs, unwrapped);
        } else {
          const auto tile = row_tile(kernels.row16, codes, q, first, count, tile16());
          uint16_t bounds[kRun];
          std::fill_n(bounds, kRun, static_cast<uint16_t>(bound));
          report(tile, kernels.below16(tile16(), tile.n_runs(), bounds, runs_.data()), visit);
        }
      }
    });
  }

 private:
  using Bundles = Batch::Bundles;

  // Skips hits at a distance of 0 that is 256.
  template <class Visit>
  struct Unwrapped {
    void hit(size_t q, size_t distance, size_t code) {
      if (wraps && distance == 0 && codes.row(code)[0] != queries.row(q)[0]) return;
      visit.hit(q, distance, code);
    }

    Visit& visit;
    const Codes &codes, &queries;
    bool wraps;
  };

  template <class Block>
  void for_blocks(size_t begin, size_t end, Block&& block) {
    size_t count;
    for (size_t first = begin; first < end; first += count) {
      control_.poll(worker_);
      count = std::min(growing_, end - first);
      block(first, count);
      growing_ = std::min(2 * growing_, block_);
    }
  }

  template <class Visit>
  void visit_bundle(const Bundles& bundles, size_t bundle, size_t first, size_t count,
                    Visit& visit) {
    const BundleKernels& kernels = bundles.layout.kernels;
    const size_t n_parts = bundles.layout.parts.size(), last = n_parts - 1;
    uint16_t bounds[kRun] = {};
    const Tile<uint8_t> tile = bundle_tile(tile8(), bundles, bundle, first, count);
    size_t most = 0;
    for (size_t lane = 0; lane < tile.n_queries; ++lane) {
      const size_t bound = visit.bound(tile.first_query + lane);
      for (size_t entry = lane; entry < kRun; entry += tile.lanes)
        bounds[entry] = static_cast<uint16_t>(bound);
      most = std::max(most, bound);
    }
    // If the bound fits a byte, distances below it are right, even if others saturate.
    if (most <= 255) {
      uint8_t narrow[kRun];
      std::copy_n(bounds, kRun, narrow);
      look_up(kernels.lookup8, bundles, bundle, count, last, tile8());
      report(tile,
             kernels.find8(part_offsets(bundles, last), bundles.layout.parts[last].fields, count,
                           part_lookups(bundles, bundle, last), last > 0, tile8(), narrow,
                           runs_.data()),
             visit);
    } else {
      look_up(kernels.lookup16, bundles, bundle, count, n_parts, tile16());
      const Tile<uint16_t> wide = bundle_tile(tile16(), bundles, bundle, first, count);
      report(wide, batch_.kernels_.below16(tile16(), wide.n_runs(), bounds, runs_.data()), visit);
    }
  }

  // Turns the codes of a block into the offsets of their fields.
  void expand(const Bundles& bundles, const uint8_t* codes, size_t count);
  const uint16_t* part_offsets(const Bundles& bundles, size_t part) const;
  const uint8_t* part_lookups(const Bundles& bundles, size_t bundle, size_t part) const;

  // Distances of a bundle in the first parts of the codes.
  template <class Lookup, class D>
  void look_up(Lookup lookup, const Bundles& bundles, size_t bundle, size_t count, size_t parts,
               D* tile) {
    for (size_t p = 0; p < parts; ++p)
      lookup(part_offsets(bundles, p), bundles.layout.parts[p].fields, count,
             part_lookups(bundles, bundle, p), p > 0, tile);
  }

  template <class D>
  Tile<D> bundle_tile(const D* tile, const Bundles& bundles, size_t bundle, size_t first,
                      size_t count) const {
    const size_t first_query = bundles.first_query + bundle * bundles.queries();
    const size_t n = std::min(bundles.queries(), batch_.n_queries() - first_query);
    return {tile, bundles.queries(), first_query, n, first, count};
  }

  template <class Row, class D>
  Tile<D> row_tile(Row row, const Codes& codes, size_t query, size_t first, size_t count,
                   D* tile) const {
    row(batch_.queries_.row(query), codes.row(first), codes.bytes, count, tile);
    return {tile, 1, query, 1, first, count};
  }

  template <class D, class Visit>
  void report(const Tile<D>& tile, size_t n_runs, Visit& visit) const {
    const size_t end = tile.count * tile.lanes;
    const int shift = __builtin_ctzll(tile.lanes);
    for (size_t r = 0; r < n_runs; ++r) {
      const size_t first = runs_[r].index * kRun;
      for (uint64_t mask = runs_[r].mask; mask != 0; mask &= mask - 1) {
        const size_t entry = first + static_cast<size_t>(__builtin_ctzll(mask));
        if (entry >= end) break;  // padding of the last run
        visit.hit(tile.first_query + (entry & (tile.lanes - 1)), size_t{tile.distances[entry]},
                  tile.first_code + (entry >> shift));
      }
    }
  }

  uint8_t* tile8() { return reinterpret_cast<uint8_t*>(tile_.data()); }
  uint16_t* tile16() { return tile_[0].words; }

  const Batch& batch_;
  Control& control_;
  size_t worker_;
  bool fits_byte_;  // every distance, and every bound
  bool wraps_;      // every distance but 256, which is 0 in a byte
  size_t block_;    // codes in a block, at most
  // The first blocks are small: without a bound, all codes of a block are hits.
  size_t growing_ = 64;
  std::vector<uint16_t> offsets_;  // part by part, code by code
  std::vector<CacheLine> tile_;
  std::vector<Run> runs_;
};

}  // namespace densehash
