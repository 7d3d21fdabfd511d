// Search of tables by rings, from the query's own buckets outwards.
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
  // Appends all, in any order, and forgets them.
  void finish(std::vector<uint64_t>& all) {
    all.insert(all.end(), keys.begin(), keys.end());
    keys.clear();
  }

  size_t radius;
  std::vector<uint64_t> keys;
};

// One thread's search. A ring is the buckets of a table at one distance of the query's substring.
// If a[t] rings of table t were visited, all codes up to distance sum(a) - 1 were seen: others
// differ by at least a[t] bits in each substring t. Which table's ring is the next does not
// matter; the cheapest is, and so tables that are crowded around the query are left out.
class Rings {
 public:
  // Queries whose first buckets are looked up together.
  static constexpr size_t kQueries = 16;

  // budget: nanoseconds, roughly, that a search may take.
  Rings(const Kernels& kernels, const MultiTables& tables, double budget, Control& control,
        size_t worker)
      : tables_(tables), substrings_(tables.substrings), reader_(kernels, tables, control, worker),
        budget_(budget), rings_(substrings_.count()), block_values_(kQueries * rings_.size()),
        block_buckets_(kQueries * rings_.size()), reach_(reach()) {}

  // What the last search cost, as far as it went.
  double spent() const { return std::min(spent_, budget_); }

  // Makes ready for a block of queries.
  void open(Codes queries);

  // Shows near rows to take, each once, until there are enough. False where the budget is spent.
  bool search(size_t q, NearestCodes<Stream::any>& take);

  // Shows all rows within take.radius, each once. False where that would cost too much.
  bool search(size_t q, RowsWithin& take);

 private:
  static constexpr size_t kNone = SIZE_MAX;
  // The next ring of a table: all closer ones were visited.
  struct Ring {
    unsigned distance = 0;
    double n_buckets;  // empty ones too
    bool is_open;      // whether its buckets were looked up
    double cost;       // of what is to be done next: of that, or of visiting them
    std::vector<Bucket> buckets;
  };
  struct Planned {
    size_t table;
    unsigned distance;
    std::vector<Bucket> buckets;
  };

  // How far the budget would last if rows lay evenly; where they do not, it lasts less.
  size_t reach();

  size_t after(size_t table) const { return table + 1 < rings_.size() ? table + 1 : 0; }
  bool is_last(size_t table) const { return rings_[table].distance == substrings_.bits(table); }

  unsigned distance(const uint8_t* code, size_t table) const;
  bool is_looked_for(const uint8_t* code, size_t table) const;

  void start(size_t q, bool refines);
  // The table whose next ring is the cheapest, looked up and paid for; kNone over the budget.
  size_t next();
  void advance(size_t table);
  void look_up(size_t table);
  // Opens a ring; to refine a bucket means, mostly, to look for the values at distance 1.
  void price(Ring& ring);
  // Replaces large buckets by those stretches of them whose next substring is near enough.
  void refine(Planned& ring);
  // Appends the stretches of a bucket whose next substring has a sought value: each begins at the
  // first row that has it or more, and ends at the first with more. All are searched for side by
  // side, so that their codes come from memory together.
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
  // Of a bucket that is refined:
  std::vector<uint32_t> sought_, places_;
  std::vector<const uint8_t*> codes_;
  std::vector<Bucket> refined_;
};

}  // namespace densehash
