#include "rings.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace densehash {
namespace {

// Costs in nanoseconds; only their ratios matter, and only for speed.
constexpr double kBucketCost = 6;
constexpr double kRowCost = 15;

// Calls f(number) for all numbers of this many bits with this many ones.
template <class F>
void for_each_choice(unsigned bits, unsigned ones, F&& f) {
  if (ones == 0) return f(0);
  const uint32_t end = uint32_t{1} << bits;
  for (uint32_t number = (uint32_t{1} << ones) - 1; number < end;) {
    f(number);
    const uint32_t low = number & (~number + 1), carried = number + low;
    number = carried | (carried ^ number) >> (2 + __builtin_ctz(low));
  }
}

// How many rows of a bucket are read to find those with some values.
double n_looked_at(double n_rows, double n_values) { return n_values * (std::log2(n_rows) + 2); }

}  // namespace

void Rings::open(Codes queries) {
  queries_ = queries;
  for (size_t q = 0, i = 0; q < queries.count; ++q) {
    for (size_t table = 0; table < rings_.size(); ++table, ++i) {
      block_values_[i] = substrings_.value(queries.row(q), table);
      __builtin_prefetch(tables_.starts_of(table) + block_values_[i]);
    }
  }
  for (size_t q = 0, i = 0; q < queries.count; ++q) {
    for (size_t table = 0; table < rings_.size(); ++table, ++i) {
      block_buckets_[i] = tables_.bucket(table, block_values_[i]);
      __builtin_prefetch(tables_.rows_of(table) + block_buckets_[i].begin);
    }
  }
}

bool Rings::search(size_t q, NearestCodes<Stream::any>& take) {
  start(q, false);
  for (size_t radius = 0;; ++radius) {
    const size_t table = next();
    if (table == kNone) return false;
    const auto is_new = [&](size_t row) {
      const uint8_t* code = tables_.codes.row(row);
      for (size_t other = 0; other < rings_.size(); ++other)
        if (other != table && distance(code, other) < rings_[other].distance) return false;
      return true;
    };
    reader_.visit(table, rings_[table].buckets, queries_.row(q), take, is_new);
    if (take.is_complete(radius) || is_last(table)) return true;
    // The codes found so far are mostly not much farther than the nearest.
    if (spent_ > budget_ / 8 && 3 * (take.bound() - 1) > 4 * reach_) return false;
    advance(table);
  }
}

// Let a[t] rings of table t be visited, with sum(a) = radius + 1, and let d[t] be the distances of
// the substrings of a code, whose sum is at most the radius. Then there is a table from which all
// sums of a - d, around the cycle of tables, are positive (the cycle lemma; J. Qin, C. Xiao,
// Pigeonring: a principle for faster thresholded similarity search, VLDB 2018). So it is enough to
// look for codes in tables t with d[t] < a[t] and d[t] + d[t + 1] < a[t] + a[t + 1]. The rows of a
// bucket are in order of the next substring, so only a part of a large bucket has to be visited.
bool Rings::search(size_t q, RowsWithin& take) {
  start(q, rings_.size() > 1);
  plan_.resize(std::max(plan_.size(), take.radius + 1));
  for (size_t step = 0; step <= take.radius; ++step) {
    const size_t table = next();
    if (table == kNone || is_last(table)) return false;
    plan_[step].table = table;
    plan_[step].distance = rings_[table].distance;
    std::swap(plan_[step].buckets, rings_[table].buckets);
    advance(table);
  }
  for (size_t step = 0; step <= take.radius; ++step) {
    const size_t table = plan_[step].table;
    const auto is_new = [&](size_t row) {
      const uint8_t* code = tables_.codes.row(row);
      for (size_t other = 0; other < table; ++other)
        if (is_looked_for(code, other)) return false;
      return is_looked_for(code, table);
    };
    if (refines_) refine(plan_[step]);
    reader_.visit(table, plan_[step].buckets, queries_.row(q), take, is_new);
  }
  return true;
}

size_t Rings::reach() {
  double spent = 0;
  for (size_t table = 0; table < rings_.size(); ++table) rings_[table].n_buckets = 1;
  for (size_t radius = 0;; ++radius) {
    const size_t table = radius % rings_.size();
    const double in_bucket = static_cast<double>(tables_.codes.count) /
                             static_cast<double>(substrings_.n_values(table));
    spent += rings_[table].n_buckets * (kBucketCost + kRowCost * in_bucket);
    if (spent > budget_ || is_last(table)) return radius;
    advance(table);
  }
}

unsigned Rings::distance(const uint8_t* code, size_t table) const {
  const uint32_t differs = substrings_.value(code, table) ^ values_[table];
  return static_cast<unsigned>(__builtin_popcount(differs));
}

bool Rings::is_looked_for(const uint8_t* code, size_t table) const {
  const unsigned d = distance(code, table), a = rings_[table].distance;
  return d < a && d + distance(code, after(table)) < a + rings_[after(table)].distance;
}

void Rings::start(size_t q, bool refines) {
  refines_ = refines;
  values_ = block_values_.data() + q * rings_.size();
  for (size_t table = 0; table < rings_.size(); ++table) {
    Ring& ring = rings_[table];
    const Bucket bucket = block_buckets_[q * rings_.size() + table];
    ring.distance = 0;
    ring.n_buckets = 1;
    ring.buckets.clear();
    if (bucket.begin < bucket.end) ring.buckets.push_back(bucket);
    price(ring);
  }
  spent_ = 0;
}

size_t Rings::next() {
  for (;;) {
    size_t table = 0;
    for (size_t other = 1; other < rings_.size(); ++other)
      if (rings_[other].cost < rings_[table].cost) table = other;
    spent_ += rings_[table].cost;
    if (spent_ > budget_) return kNone;
    if (rings_[table].is_open) return table;
    look_up(table);
  }
}

void Rings::advance(size_t table) {
  Ring& ring = rings_[table];
  ring.n_buckets *= substrings_.bits(table) - ring.distance;
  ring.n_buckets /= ++ring.distance;
  ring.is_open = false;
  ring.cost = kBucketCost * ring.n_buckets;
}

void Rings::look_up(size_t table) {
  constexpr size_t kTogether = 64;
  uint32_t values[kTogether];
  size_t n = 0;
  Ring& ring = rings_[table];
  ring.buckets.clear();
  for_each_choice(substrings_.bits(table), ring.distance, [&](uint32_t flips) {
    values[n++] = values_[table] ^ flips;
    if (n == kTogether) reader_.look_up(table, values, std::exchange(n, 0), ring.buckets);
  });
  reader_.look_up(table, values, n, ring.buckets);
  price(ring);
}

void Rings::price(Ring& ring) {
  ring.is_open = true;
  ring.cost = 0;
  for (const Bucket& bucket : ring.buckets) {
    const double n_rows = bucket.end - bucket.begin;
    ring.cost += kRowCost * (refines_ ? std::min(n_rows, n_looked_at(n_rows, 24)) : n_rows);
  }
}

void Rings::refine(Planned& ring) {
  const size_t next = after(ring.table);
  const unsigned bits = substrings_.bits(next);
  const unsigned most = rings_[ring.table].distance + rings_[next].distance - ring.distance - 1;
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
    find_sought(ring.table, next, bucket);
  }
  std::swap(ring.buckets, refined_);
}

void Rings::find_sought(size_t table, size_t next, Bucket bucket) {
  const uint32_t* rows = tables_.rows_of(table);
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

}  // namespace densehash
