#include <cmath>
#include <limits>
#include <memory>

#include "buckets.hpp"
#include "multi.hpp"
#include "select.hpp"

namespace densehash {
namespace {

// Sets of bits of a substring, ordered by (sum of costs, bits by rank of their cost).
class Perturbations {
 public:
  // The first `count` sets, as numbers; the first is empty. costs: the cost of each bit.
  void find(const float* costs, unsigned bits, size_t count, std::vector<uint32_t>& sets) {
    for (uint32_t bit = 0; bit < bits; ++bit)  // NaN becomes infinite, so that sorting works
      ranked_[bit] = {std::fmin(std::fabs(costs[bit]), kInfinite), bit};
    std::sort(ranked_, ranked_ + bits);
    sets.assign(1, 0);
    heap_.clear();
    push(0, 0, 0, 0);
    while (sets.size() < count && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const Node node = heap_.back();
      heap_.pop_back();
      sets.push_back(node.bits);
      // Every set except the first has one parent: without its last rank, or with the rank before
      // it.
      const unsigned last = 31 - static_cast<unsigned>(__builtin_clz(node.ranks));
      if (last + 1 == bits) continue;
      const uint32_t bit = uint32_t{1} << ranked_[last].second;
      push(last + 1, node.rest, node.ranks ^ uint32_t{1} << last, node.bits ^ bit);
      push(last + 1, node.cost, node.ranks, node.bits);
    }
  }

 private:
  static constexpr float kInfinite = std::numeric_limits<float>::infinity();

  // Costs are summed in the order of ranks, so that no child costs less than its parent, whatever
  // the rounding.
  struct Node {
    double cost, rest;     // of all ranks, and of all except the last
    uint32_t ranks, bits;  // the set by rank (bit i: the bit of rank i), and the set itself
  };

  static bool later(const Node& x, const Node& y) {
    return x.cost != y.cost ? x.cost > y.cost : x.ranks > y.ranks;
  }

  void push(unsigned rank, double rest, uint32_t ranks, uint32_t bits) {
    heap_.push_back({rest + static_cast<double>(ranked_[rank].first), rest,
                     ranks | uint32_t{1} << rank, bits | uint32_t{1} << ranked_[rank].second});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  std::pair<float, uint32_t> ranked_[Substrings::kMostBits];
  std::vector<Node> heap_;
};

// The search of one thread.
class ProbeSearch {
 public:
  ProbeSearch(const Kernels& kernels, const MultiTables& tables, Control& control, size_t worker)
      : tables_(tables), reader_(kernels, tables, control, worker),
        flips_(tables.substrings.count()), values_(flips_.size()), buckets_(flips_.size()) {}

  void search(const uint8_t* query, const float* margins, size_t n_probes,
              NearestCodes<Stream::any>& take) {
    const Substrings& substrings = tables_.substrings;
    for (size_t table = 0; table < flips_.size(); ++table) {
      perturbations_.find(margins, substrings.bits(table), n_probes, flips_[table]);
      margins += substrings.bits(table);
      values_[table] = substrings.value(query, table);
      look_up(table);
      std::sort(flips_[table].begin(), flips_[table].end());
    }
    for (size_t table = 0; table < flips_.size(); ++table) {
      reader_.visit(table, buckets_[table], query, take, [&](size_t row) {
        const uint8_t* code = tables_.codes.row(row);
        for (size_t other = 0; other < table; ++other) {
          const uint32_t differs = substrings.value(code, other) ^ values_[other];
          if (std::binary_search(flips_[other].begin(), flips_[other].end(), differs))
            return false;
        }
        return true;
      });
    }
  }

 private:
  void look_up(size_t table) {
    constexpr size_t kTogether = 64;
    uint32_t values[kTogether];
    buckets_[table].clear();
    const std::vector<uint32_t>& flips = flips_[table];
    for (size_t first = 0; first < flips.size(); first += kTogether) {
      const size_t n = std::min(kTogether, flips.size() - first);
      for (size_t i = 0; i < n; ++i) values[i] = values_[table] ^ flips[first + i];
      reader_.look_up(table, values, n, buckets_[table]);
    }
  }

  const MultiTables& tables_;
  BucketReader reader_;
  Perturbations perturbations_;
  std::vector<std::vector<uint32_t>> flips_;  // for each table, the bits that differ in a probe
  std::vector<uint32_t> values_;              // of the query
  std::vector<std::vector<Bucket>> buckets_;
};

}  // namespace

void multi_probe(const Kernels& kernels, Codes queries, const float* margins, size_t n_bits,
                 const MultiTables& tables, size_t n_probes, size_t k, Control& control,
                 int32_t* distances, int64_t* positions) {
  constexpr size_t kQueries = 8;
  std::fill(distances, distances + queries.count * k, -1);
  std::fill(positions, positions + queries.count * k, int64_t{-1});
  const size_t there = std::min(k, tables.codes.count);
  if (there == 0) return;
  struct Worker {
    ProbeSearch search;
    NearestCodes<Stream::any> take;
    std::vector<uint64_t> keys;
  };
  std::vector<std::unique_ptr<Worker>> workers(control.n_threads());
  const size_t n_blocks = (queries.count + kQueries - 1) / kQueries;
  control.run(control.n_threads(), n_blocks, [&](size_t block, size_t worker) {
    if (!workers[worker])
      workers[worker].reset(
          new Worker{{kernels, tables, control, worker}, {there, tables.codes.bits()}, {}});
    auto& [search, take, keys] = *workers[worker];
    const size_t end = std::min((block + 1) * kQueries, queries.count);
    for (size_t q = block * kQueries; q < end; ++q) {
      search.search(queries.row(q), margins + q * n_bits, n_probes, take);
      keys.clear();
      take.finish(keys);
      std::sort(keys.begin(), keys.end());
      put_keys(keys, k, distances + q * k, positions + q * k);
    }
  });
}

}  // namespace densehash
