#include "search.hpp"

#include <memory>
#include <utility>

#include "checked.hpp"
#include "count.hpp"
#include "keys.hpp"
#include "plan.hpp"

namespace densehash {

// --- all within a radius -----------------------------------------------------------------------

namespace {

// Calls take(query, distance, code) for all codes up to a radius.
template <class Take>
struct Near {
  size_t bound(size_t) const { return radius + 1; }
  void hit(size_t q, size_t distance, size_t code) { take(q, distance, code); }

  size_t radius;
  Take take;
};

// A code that was found, before there is room for it in the output.
struct Found {
  size_t query;
  uint64_t key;
};
// How many codes a thread keeps. If there are more, they are counted, and placed by the counts.
constexpr size_t kMostFound = 128 * 1024;

}  // namespace

void within(const Kernels& kernels, Codes queries, Codes codes, size_t radius, Control& control,
            int64_t* limits, const std::function<Room(size_t)>& make_room) {
  radius = std::min(radius, codes.bits());
  const size_t n_queries = queries.count;
  std::fill(limits, limits + n_queries + 1, 0);
  if (n_queries == 0 || codes.count == 0) {
    make_room(0);
    return;
  }
  const Layout layout(kernels, codes.bytes);
  const size_t width = codes.bits() + 1;
  const size_t most = fitting(width * sizeof(int64_t));
  const Plan plan(queries, codes, std::min(Batch::most_queries(layout), most), control);
  // Each thread calls take(range, query of the batch, distance, code) for a range of the codes.
  const auto visit = [&](const Batch& batch, auto&& take) {
    control.run(plan.n_workers, plan.n_workers, [&](size_t range, size_t worker) {
      auto take_one = [&](size_t q, size_t distance, size_t code) {
        take(range, q, distance, code);
      };
      Scan(batch, control, worker)
          .visit_below(codes, plan.range_begin(range), plan.range_begin(range + 1),
                       Near<decltype(take_one)>{radius, take_one});
    });
  };

  std::vector<std::vector<Found>> found(plan.n_workers);
  std::vector<std::vector<int64_t>> totals(plan.n_workers, std::vector<int64_t>(n_queries));
  for (size_t b = 0; b < plan.n_batches; ++b) {
    const size_t first = plan.first_query(b);
    visit(Batch(kernels, layout, plan.batch(b)),
          [&](size_t range, size_t q, size_t distance, size_t code) {
            ++totals[range][first + q];
            if (found[range].size() <= kMostFound)
              found[range].push_back({first + q, HammingKey::make(distance, code)});
          });
  }
  for (size_t q = 0; q < n_queries; ++q) {
    limits[q + 1] = limits[q];
    for (const auto& of_range : totals) limits[q + 1] += of_range[q];
  }
  const Room room = make_room(static_cast<size_t>(limits[n_queries]));

  const bool all_kept = std::all_of(found.begin(), found.end(), [](const auto& of_range) {
    return of_range.size() <= kMostFound;
  });
  if (all_kept) {
    std::vector<Found> all;
    for (const auto& of_range : found) all.insert(all.end(), of_range.begin(), of_range.end());
    std::sort(all.begin(), all.end(), [](const Found& x, const Found& y) {
      return x.query != y.query ? x.query < y.query : x.key < y.key;
    });
    for (size_t i = 0; i < all.size(); ++i) {
      room.distances[i] = static_cast<int32_t>(HammingKey::first(all[i].key));
      room.indices[i] = static_cast<int64_t>(HammingKey::position(all[i].key));
    }
    return;
  }
  for (size_t b = 0; b < plan.n_batches; ++b) {
    const Batch batch(kernels, layout, plan.batch(b));
    std::vector<std::vector<int64_t>> counts(plan.n_workers,
                                             std::vector<int64_t>(batch.n_queries() * width));
    visit(batch, [&](size_t range, size_t q, size_t distance, size_t) {
      ++counts[range][q * width + distance];
    });
    const int64_t* of_batch = limits + plan.first_query(b);
    place_counted(plan, batch, counts, {of_batch, of_batch + batch.n_queries()},
                  {of_batch + 1, of_batch + 1 + batch.n_queries()}, control, room.distances,
                  room.indices);
  }
}

// --- distances and their counts ----------------------------------------------------------------

void distances(const Kernels& kernels, Codes queries, Codes codes, Control& control,
               uint16_t* distances) {
  constexpr size_t kCodes = 4096, kQueries = 64;
  if (queries.count == 0 || codes.count == 0) return;
  const size_t n_blocks = (codes.count + kCodes - 1) / kCodes;
  const size_t n_tasks = n_blocks * ((queries.count + kQueries - 1) / kQueries);
  const size_t n_workers = control.worth_starting(n_bytes(queries, codes));
  control.run(n_workers, n_tasks, [&](size_t task, size_t worker) {
    control.poll(worker);
    const size_t first = task % n_blocks * kCodes, first_query = task / n_blocks * kQueries;
    const size_t count = std::min(kCodes, codes.count - first);
    for (size_t q = first_query; q < std::min(first_query + kQueries, queries.count); ++q)
      kernels.row16(queries.row(q), codes.row(first), codes.bytes, count,
                    distances + q * codes.count + first);
  });
}

namespace {

// The counts of one thread for the queries of a batch. Relevant positions are counted on the way if
// they ascend: those in a block of codes are then consecutive and inside it. If they do not ascend,
// some position is outside its block, and count_singly counts the query.
struct Histogram {
  void visit(size_t begin, size_t end) {
    all.visit(begin, end, control, worker,
              [&](size_t q, const auto* row, size_t first, size_t n) {
                if (rises[q]) rises[q] = count_rising(q, row, static_cast<int64_t>(first), n);
              });
  }

  // Neighbours are often equally far: counting them alternately in two places avoids waiting for
  // the last count.
  template <class D>
  bool count_rising(size_t q, const D* row, int64_t first, size_t n) {
    const int64_t* begin = positions + limits[q];
    const int64_t* end = positions + limits[q + 1];
    const int64_t* at = std::lower_bound(begin, end, first);
    end = std::lower_bound(begin, end, first + static_cast<int64_t>(n));
    n_met[q] += end - at;
    int64_t* even = relevant.data() + 2 * q * width;
    int64_t* odd = even + width;
    while (at < end) {
      control.poll(worker);
      const int64_t* stop = at + std::min<ptrdiff_t>(end - at, 65536);
      for (; at + 2 <= stop; at += 2) {
        const size_t i = static_cast<size_t>(read_once(at) - first);
        const size_t j = static_cast<size_t>(read_once(at + 1) - first);
        if (i >= n || j >= n) return false;
        ++even[row[i]];
        ++odd[row[j]];
      }
      if (at == stop) continue;
      const size_t i = static_cast<size_t>(read_once(at++) - first);
      if (i >= n) return false;
      ++even[row[i]];
    }
    return at == end;
  }

  Counter all;
  size_t width;
  const int64_t* limits;  // of the queries of the batch
  const int64_t* positions;
  Control& control;
  size_t worker;
  std::vector<char> rises;
  std::vector<int64_t> n_met;
  std::vector<int64_t> relevant;  // (queries, 2, width)
};

// Counts relevant codes by comparing them a second time.
void count_singly(const Kernels& kernels, Codes queries, Codes codes, const Relevant& relevant,
                  const std::vector<char>& wanted, Control& control) {
  const double bytes =
      static_cast<double>(relevant.limits[queries.count]) * static_cast<double>(codes.bytes);
  const size_t n_workers = control.worth_starting(bytes);
  control.run(n_workers, queries.count, [&](size_t q, size_t worker) {
    if (!wanted[q]) return;
    int64_t* counts = relevant.counts + q * (codes.bits() + 1);
    int64_t positions[Relevant::kSome];
    uint16_t near[Relevant::kSome];
    const int64_t end = relevant.limits[q + 1];
    for (int64_t i = relevant.limits[q]; i < end; i += Relevant::kSome) {
      control.poll(worker);
      const size_t n = relevant.copy(i, end, codes.count, positions);
      kernels.gather(queries.row(q), codes.data, codes.bytes, positions, n, near);
      for (size_t j = 0; j < n; ++j) ++counts[near[j]];
    }
  });
}

}  // namespace

void histogram(const Kernels& kernels, Codes queries, Codes codes, const Relevant* relevant,
               Control& control, int64_t* counts) {
  if (queries.count == 0 || codes.count == 0) return;
  const size_t width = codes.bits() + 1;
  const Relevant some = relevant != nullptr ? *relevant : Relevant{};
  const Plan plan(queries, codes, fitting(Counter::bytes_a_query(codes)), control);
  std::vector<char> left(queries.count, relevant != nullptr);  // relevant codes not counted yet
  using Visitor = std::unique_ptr<Histogram>;
  using Prepared = std::pair<size_t, Codes>;
  visit_batches(
      plan, control,
      [&](size_t first, const Codes& of_batch, size_t) { return Prepared(first, of_batch); },
      [&](const Prepared& batch, size_t worker) {
        const auto [first, of_batch] = batch;
        return Visitor(new Histogram{Counter(kernels, of_batch, codes), width,
                                     relevant != nullptr ? some.limits + first : nullptr,
                                     some.positions, control, worker,
                                     std::vector<char>(of_batch.count, relevant != nullptr),
                                     std::vector<int64_t>(of_batch.count),
                                     std::vector<int64_t>(of_batch.count * 2 * width)});
      },
      [&](size_t first, std::vector<Visitor>& visitors) {
        for (const Visitor& visitor : visitors) {
          const std::vector<int64_t>& all = visitor->all.counts();
          for (size_t i = 0; i < all.size(); ++i) counts[first * width + i] += all[i];
        }
        for (size_t q = 0; relevant != nullptr && q < visitors[0]->rises.size(); ++q) {
          int64_t missing = some.limits[first + q + 1] - some.limits[first + q];
          bool rises = true;
          for (const Visitor& visitor : visitors) {
            missing -= visitor->n_met[q];
            rises = rises && visitor->rises[q];
          }
          left[first + q] = !rises || missing != 0;
          if (left[first + q]) continue;
          for (const Visitor& visitor : visitors)
            for (size_t i = 0; i < 2 * width; ++i)
              some.counts[(first + q) * width + i % width] +=
                  visitor->relevant[2 * q * width + i];
        }
      });
  if (relevant != nullptr) count_singly(kernels, queries, codes, some, left, control);
}

}  // namespace densehash
