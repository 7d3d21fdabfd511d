// Searches tables by rings, from the query's own buckets outwards.
#pragma once

#include <cstdint>
#include <vector>

#include "buckets.hpp"
#include "multi.hpp"
#include "select.hpp"

namespace densehash {

// Rows up to a radius.
struct RowsWithin {
  size_t bound() const { return radius + 1; }
  void hit(size_t distance, size_t row) { keys.push_back(HammingKey::make(distance, row)); }
  // Appends all rows to `all`, in any order, and clears this.
  void finish(std::vector<uint64_t>& all) {
    all.insert(all.end(), keys.begin(), keys.end());
    keys.clear();
  }

  size_t radius;
  std::vector<uint64_t> keys;
};

// The search of one thread. A ring is the buckets of a table at one distance from the query's
// substring. After a[t] rings of each table t, all codes up to distance sum(a) - 1 were seen: the
// others differ by at least a[t] bits in each substring t. The tables may take turns in any order.
// The cheapest ring is always next, so tables with many rows near the query are avoided.
class Rings {
 public:
  // Queries whose first buckets are looked up together.
  static constexpr size_t kQueries = 16;

  // budget: roughly how many nanoseconds a search may take.
  Rings(const Kernels& kernels, const MultiTables& tables, double budget, Control& control,
        size_t worker)
      : tables_(tables), substrings_(tables.substrings), reader_(kernels, tables, control, worker),
        budget_(budget), rings_(substrings_.count()), block_values_(kQueries * rings_.size()),
        block_buckets_(kQueries * rings_.size()), reach_(reach()) {}

  // The cost of the last search, even if it gave up.
  double spent() const { return std::min(spent_, budget_); }

  // Prepares a block of queries.
  void open(Codes queries);

  // Shows near rows to `take`, each once, until there are enough. False if the budget is spent.
  bool search(size_t q, NearestCodes<Stream::any>& take);

  // Shows all rows within take.radius, each once. False if that would cost too much.
  bool search(size_t q, RowsWithin& take);

 private:
  static constexpr size_t kNone = SIZE_MAX;
  // The next ring of a table; all closer ones were visited.
  struct Ring {
    unsigned distance = 0;
    double n_buckets;  // including empty ones
    bool is_open;      // whether its buckets were looked up
    double cost;       // of the next step: to look them up, or to visit them
    std::vector<Bucket> buckets;
  };
  struct Planned {
    size_t table;
    unsigned distance;
    std::vector<Bucket> buckets;
  };

  // Up to which radius the budget would last if rows were spread evenly; otherwise it is less.
  size_t reach();

  size_t after(size_t table) const { return table + 1 < rings_.size() ? table + 1 : 0; }
  bool is_last(size_t table) const { return rings_[table].distance == substrings_.bits(table); }

  unsigned distance(const uint8_t* code, size_t table) const;
  bool is_looked_for(const uint8_t* code, size_t table) const;

  void start(size_t q, bool refines);
  // The table whose next ring is the cheapest; looks the ring up and counts its cost. kNone if that
  // is over the budget.
  size_t next();
  void advance(size_t table);
  void look_up(size_t table);
  // Sets the cost of a ring that was looked up; refining a bucket mostly means to search for the
  // values at distance 1.
  void price(Ring& ring);
  // Replaces large buckets by their stretches whose next substring is near enough.
  void refine(Planned& ring);
  // Appends the stretches of a bucket whose next substring has a sought value. Each begins at the
  // first row with at least this value, and ends at the first with a larger one. All are searched
  // for together, so that their codes are fetched from memory together.
  void find_sought(size_t table, size_t next, Bucket bucket);

  const MultiTables& tables_;
  const Substrings& substrings_;
  BucketReader reader_;
  double budget_, spent_ = 0;
  bool refines_ = false;
  Codes queries_{};
  std::vector<Ring> rings_;
  std::vector<Planned> plan_;
  const uint32_t* values_ = nullptr;    // the query's substrings
  std::vector<uint32_t> block_values_;  // of all queries of the block
  std::vector<Bucket> block_buckets_;   // of these values
  size_t reach_;
  // For the bucket that is refined:
  std::vector<uint32_t> sought_, places_;
  std::vector<const uint8_t*> codes_;
  std::vector<Bucket> refined_;
};

}  // namespace densehash
