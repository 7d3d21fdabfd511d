// Search of tables by rings, from the query's own buckets outwards.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "buckets.hpp"
#include "multi.hpp"

namespace densehash {

// Rows up to a radius.
struct RowsWithin {
  size_t bound() const { return radius + 1; }
  void hit(size_t distance, size_t row) { keys.push_back(make_key(distance, row)); }
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
  static constexpr size_t kBlock = 16;

  // budget: nanoseconds, roughly, that a search may take.
  Rings(const Kernels& kernels, const MultiTables& tables, double budget, Control& control,
        size_t worker)
      : tables_(tables), substrings_(tables.substrings), reader_(kernels, tables, control, worker),
        budget_(budget), rings_(substrings_.count()), block_values_(kBlock * rings_.size()),
        block_buckets_(kBlock * rings_.size()), reach_(reach()) {}

  // What the last search cost, as far as it went.
  double spent() const { return std::min(spent_, budget_); }

  // Makes ready for a block of queries.
  void open(Codes queries) {
    queries_ = queries;
    for (size_t q = 0, i = 0; q < queries.count; ++q) {
      for (size_t part = 0; part < rings_.size(); ++part, ++i) {
        block_values_[i] = substrings_.value(queries.row(q), part);
        __builtin_prefetch(tables_.starts_of(part) + block_values_[i]);
      }
    }
    for (size_t q = 0, i = 0; q < queries.count; ++q) {
      for (size_t part = 0; part < rings_.size(); ++part, ++i) {
        block_buckets_[i] = tables_.bucket(part, block_values_[i]);
        __builtin_prefetch(tables_.rows_of(part) + block_buckets_[i].begin);
      }
    }
  }

  // Shows near rows to take, each once, until there are enough. False where the budget is spent.
  bool search(size_t q, NearestRows& take) {
    start(q, false);
    for (size_t radius = 0;; ++radius) {
      const size_t part = next();
      if (part == kNone) return false;
      const auto is_new = [&](size_t row) {
        const uint8_t* code = tables_.codes.row(row);
        for (size_t other = 0; other < rings_.size(); ++other)
          if (other != part && distance(code, other) < rings_[other].distance) return false;
        return true;
      };
      reader_.visit(part, rings_[part].buckets, queries_.row(q), take, is_new);
      if (take.complete(radius) || is_last(part)) return true;
      // What was found so far is mostly not much farther than the nearest.
      if (spent_ > budget_ / 8 && 3 * (take.bound() - 1) > 4 * reach_) return false;
      advance(part);
    }
  }

  // Shows all rows within take.radius, each once. False where that would cost too much.
  //
  // Let a[t] rings of table t be visited, sum(a) = radius + 1, and d[t] be the distances of a
  // code's substrings, whose sum is at most the radius. There is a table from which on, going
  // round, all sums of a - d are positive (the cycle lemma; J. Qin, C. Xiao, Pigeonring: a
  // principle for faster thresholded similarity search, VLDB 2018). So it is enough to look for
  // codes in t where d[t] < a[t] and d[t] + d[t + 1] < a[t] + a[t + 1]; and as the rows of a bucket
  // are in order of the next substring, large buckets need not be visited whole.
  bool search(size_t q, RowsWithin& take) {
    start(q, rings_.size() > 1);
    plan_.resize(std::max(plan_.size(), take.radius + 1));
    for (size_t step = 0; step <= take.radius; ++step) {
      const size_t part = next();
      if (part == kNone || is_last(part)) return false;
      plan_[step].part = part;
      plan_[step].distance = rings_[part].distance;
      std::swap(plan_[step].buckets, rings_[part].buckets);
      advance(part);
    }
    for (size_t step = 0; step <= take.radius; ++step) {
      const size_t part = plan_[step].part;
      const auto is_new = [&](size_t row) {
        const uint8_t* code = tables_.codes.row(row);
        for (size_t other = 0; other < part; ++other)
          if (is_looked_for(code, other)) return false;
        return is_looked_for(code, part);
      };
      if (refines_) refine(plan_[step]);
      reader_.visit(part, plan_[step].buckets, queries_.row(q), take, is_new);
    }
    return true;
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  // What things cost, in nanoseconds; only their ratios matter, and only for speed.
  static constexpr double kBucketCost = 6;
  static constexpr double kRowCost = 15;

  // The next ring of a table: all closer ones were visited.
  struct Ring {
    unsigned distance = 0;
    double n_buckets;  // empty ones too
    bool is_open;      // whether its buckets were looked up
    double cost;       // of what is to be done next: of that, or of visiting them
    std::vector<Bucket> buckets;
  };
  struct Planned {
    size_t part;
    unsigned distance;
    std::vector<Bucket> buckets;
  };

  // f(number) for the numbers of so many bits of which so many are ones.
  template <class F>
  static void for_each_choice(unsigned bits, unsigned ones, F&& f) {
    if (ones == 0) return f(0);
    const uint32_t end = uint32_t{1} << bits;
    for (uint32_t number = (uint32_t{1} << ones) - 1; number < end;) {
      f(number);
      const uint32_t low = number & (~number + 1), carried = number + low;
      number = carried | (carried ^ number) >> (2 + __builtin_ctz(low));
    }
  }

  // How far the budget would last if rows lay evenly; where they do not, it lasts less.
  size_t reach() {
    double spent = 0;
    for (size_t part = 0; part < rings_.size(); ++part) rings_[part].n_buckets = 1;
    for (size_t radius = 0;; ++radius) {
      const size_t part = radius % rings_.size();
      const double in_bucket = static_cast<double>(tables_.codes.count) /
                               static_cast<double>(substrings_.n_values(part));
      spent += rings_[part].n_buckets * (kBucketCost + kRowCost * in_bucket);
      if (spent > budget_ || is_last(part)) return radius;
      advance(part);
    }
  }

  size_t after(size_t part) const { return part + 1 < rings_.size() ? part + 1 : 0; }
  bool is_last(size_t part) const { return rings_[part].distance == substrings_.bits(part); }

  unsigned distance(const uint8_t* code, size_t part) const {
    const uint32_t differs = substrings_.value(code, part) ^ values_[part];
    return static_cast<unsigned>(__builtin_popcount(differs));
  }

  bool is_looked_for(const uint8_t* code, size_t part) const {
    const unsigned d = distance(code, part), a = rings_[part].distance;
    return d < a && d + distance(code, after(part)) < a + rings_[after(part)].distance;
  }

  void start(size_t q, bool refines) {
    refines_ = refines;
    values_ = block_values_.data() + q * rings_.size();
    for (size_t part = 0; part < rings_.size(); ++part) {
      Ring& ring = rings_[part];
      const Bucket bucket = block_buckets_[q * rings_.size() + part];
      ring.distance = 0;
      ring.n_buckets = 1;
      ring.buckets.clear();
      if (bucket.begin < bucket.end) ring.buckets.push_back(bucket);
      price(ring);
    }
    spent_ = 0;
  }

  // The table whose next ring is the cheapest, looked up and paid for; kNone over the budget.
  size_t next() {
    for (;;) {
      size_t part = 0;
      for (size_t other = 1; other < rings_.size(); ++other)
        if (rings_[other].cost < rings_[part].cost) part = other;
      spent_ += rings_[part].cost;
      if (spent_ > budget_) return kNone;
      if (rings_[part].is_open) return part;
      look_up(part);
    }
  }

  void advance(size_t part) {
    Ring& ring = rings_[part];
    ring.n_buckets *= substrings_.bits(part) - ring.distance;
    ring.n_buckets /= ++ring.distance;
    ring.is_open = false;
    ring.cost = kBucketCost * ring.n_buckets;
  }

  void look_up(size_t part) {
    constexpr size_t kTogether = 64;
    uint32_t values[kTogether];
    size_t n = 0;
    Ring& ring = rings_[part];
    ring.buckets.clear();
    for_each_choice(substrings_.bits(part), ring.distance, [&](uint32_t flips) {
      values[n++] = values_[part] ^ flips;
      if (n == kTogether) reader_.look_up(part, values, std::exchange(n, 0), ring.buckets);
    });
    reader_.look_up(part, values, n, ring.buckets);
    price(ring);
  }

  // Opens a ring; to refine a bucket means, mostly, to look for the values at distance 1.
  void price(Ring& ring) {
    ring.is_open = true;
    ring.cost = 0;
    for (const Bucket& bucket : ring.buckets) {
      const double n_rows = bucket.end - bucket.begin;
      ring.cost += kRowCost * (refines_ ? std::min(n_rows, n_looked_at(n_rows, 24)) : n_rows);
    }
  }

  // How many rows of a bucket are looked at to find those with some values.
  static double n_looked_at(double n_rows, double n_values) {
    return n_values * (std::log2(n_rows) + 2);
  }

  // Replaces large buckets by those parts of them whose next substring is near enough.
  void refine(Planned& ring) {
    const size_t next = after(ring.part);
    const unsigned bits = substrings_.bits(next);
    const unsigned most = rings_[ring.part].distance + rings_[next].distance - ring.distance - 1;
    double n_values = 1, n_choices = 1;
    for (unsigned d = 0; d < std::min(most, bits); ++d) {
      n_choices *= bits - d;
      n_choices /= d + 1;
      n_values += n_choices;
    }
    sought_.clear();
    refined_.clear();
    for (const Bucket& bucket : ring.buckets) {
      const double n_rows = bucket.end - bucket.begin;
      if (n_rows <= n_looked_at(n_rows, n_values)) {
        refined_.push_back(bucket);
        continue;
      }
      for (unsigned d = 0; d <= most && sought_.size() < n_values; ++d)
        for_each_choice(bits, d, [&](uint32_t flips) { sought_.push_back(values_[next] ^ flips); });
      find_sought(ring.part, next, bucket);
    }
    std::swap(ring.buckets, refined_);
  }

  // Appends the parts of a bucket whose next substring has a sought value: each begins at the
  // first row that has it or more, and ends at the first with more. All are searched for side by
  // side, so that their codes come from memory together.
  void find_sought(size_t part, size_t next, Bucket bucket) {
    const uint32_t* rows = tables_.rows_of(part);
    const size_t n = 2 * sought_.size();
    places_.assign(n, bucket.begin);
    codes_.resize(n);
    for (uint32_t length = bucket.end - bucket.begin, half; length > 0; length -= half) {
      half = length - length / 2;
      for (size_t i = 0; i < n; ++i) {
        const uint32_t row = read_once(rows + places_[i] + half - 1);
        if (row >= tables_.codes.count) tables_.throw_damaged();
        codes_[i] = tables_.codes.row(row);
        __builtin_prefetch(codes_[i]);
      }
      for (size_t i = 0; i < n; ++i)
        places_[i] += substrings_.value(codes_[i], next) < sought_[i / 2] + i % 2 ? half : 0;
    }
    for (size_t i = 0; i < n; i += 2)
      if (places_[i] < places_[i + 1]) refined_.push_back({places_[i], places_[i + 1]});
  }

  const MultiTables& tables_;
  const Substrings& substrings_;
  BucketReader reader_;
  double budget_, spent_ = 0;
  bool refines_ = false;
  Codes queries_{};
  std::vector<Ring> rings_;
  std::vector<Planned> plan_;
  const uint32_t* values_ = nullptr;  // the query's substrings
  std::vector<uint32_t> block_values_;  // of all queries of the block
  std::vector<Bucket> block_buckets_;   // of these values
  size_t reach_;
  // Of a bucket that is refined:
  std::vector<uint32_t> sought_, places_;
  std::vector<const uint8_t*> codes_;
  std::vector<Bucket> refined_;
};

}  // namespace densehash
