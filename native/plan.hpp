// How a call cuts its queries into batches and distributes codes to threads.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "scan.hpp"

namespace densehash {

// Memory for a batch's candidates or counts, for each thread.
constexpr size_t kBatchBytes = 4 * 1024 * 1024;
// Codes that a thread takes at a time.
constexpr size_t kChunk = 32768;

// How many queries fit in one batch, in whole bundles.
inline size_t fitting(size_t bytes_a_query) {
  return std::max(kBatchBytes / bytes_a_query / kBundle, size_t{1}) * kBundle;
}

// Bytes that are compared if every query is compared with every code.
inline double n_bytes(const Codes& queries, const Codes& codes) {
  return static_cast<double>(queries.count) * static_cast<double>(codes.count) *
         static_cast<double>(codes.bytes);
}

// How the queries are cut into batches and the codes into ranges.
struct Plan {
  Plan(Codes queries, Codes codes, size_t most_in_batch, const Control& control)
      : queries(queries), codes(codes),
        n_workers(control.worth_starting(n_bytes(queries, codes))) {
    // As few rounds as possible, each with one batch per thread, if the batches are even.
    const size_t in_round = n_workers * most_in_batch;
    const size_t n_rounds = (queries.count + in_round - 1) / in_round;
    const size_t even = (queries.count + n_rounds * n_workers - 1) / (n_rounds * n_workers);
    const size_t in_bundles = (even + kBundle - 1) / kBundle * kBundle;
    side_by_side = in_bundles <= even + even / 16;
    batch_size = side_by_side ? in_bundles : most_in_batch;
    n_batches = (queries.count + batch_size - 1) / batch_size;
    side_by_side |= n_batches >= 4 * n_workers;
  }

  size_t first_query(size_t batch) const { return batch * batch_size; }

  Codes batch(size_t b) const {
    const size_t first = first_query(b);
    return {queries.row(first), std::min(batch_size, queries.count - first), queries.bytes};
  }

  // Codes are in n_workers equal ranges, in order of position.
  size_t range_begin(size_t range) const {
    const size_t each = codes.count / n_workers, more = codes.count % n_workers;
    return range * each + std::min(range, more);
  }

  Codes queries, codes;
  size_t n_workers, batch_size, n_batches;
  bool side_by_side;  // each thread has its own batch; otherwise its own range of codes
};

// Shows all codes to every batch. prepare(first query, queries, worker) makes what the threads
// share for a batch. make(prepared, worker) makes a visitor with visit(begin, end) over codes.
// finish(first query, visitors) takes the visitors of a batch after they have seen all codes: one
// visitor, or one for each thread if threads share the codes of a batch.
template <class Prepare, class Make, class Finish>
void visit_batches(const Plan& plan, Control& control, Prepare&& prepare, Make&& make,
                   Finish&& finish) {
  using Visitors = std::vector<decltype(make(prepare(0, Codes{}, 0), 0))>;
  const size_t n_codes = plan.codes.count;
  if (plan.side_by_side) {
    control.run(plan.n_workers, plan.n_batches, [&](size_t b, size_t worker) {
      const auto prepared = prepare(plan.first_query(b), plan.batch(b), worker);
      Visitors visitors;
      visitors.push_back(make(prepared, worker));
      visitors[0]->visit(0, n_codes);
      finish(plan.first_query(b), visitors);
    });
    return;
  }
  for (size_t b = 0; b < plan.n_batches; ++b) {
    const auto prepared = prepare(plan.first_query(b), plan.batch(b), size_t{0});
    Visitors visitors(plan.n_workers);
    control.run(plan.n_workers, (n_codes + kChunk - 1) / kChunk, [&](size_t chunk, size_t worker) {
      if (!visitors[worker]) visitors[worker] = make(prepared, worker);
      visitors[worker]->visit(chunk * kChunk, std::min((chunk + 1) * kChunk, n_codes));
    });
    visitors.erase(std::remove(visitors.begin(), visitors.end(), nullptr), visitors.end());
    finish(plan.first_query(b), visitors);
  }
}

// Where a thread writes codes: the next one at distance d of query q goes to places[q, d]; nothing
// is written at ends[q] or beyond.
struct Place {
  size_t bound(size_t q) const { return bounds[q]; }
  void hit(size_t q, size_t distance, size_t code) {
    const int64_t place = places[q * width + distance]++;
    if (place >= ends[q]) return;
    distances[place] = static_cast<int32_t>(distance);
    indices[place] = static_cast<int64_t>(code);
  }

  const std::vector<size_t>& bounds;
  const std::vector<int64_t>& ends;
  size_t width;
  std::vector<int64_t>& places;  // (queries, width)
  int32_t* distances;
  int64_t* indices;
};

// Writes codes in order of (distance, position), those of query q to begins[q]..ends[q]. For each
// range of codes, counts has how many are at each distance, (queries, bits + 1), up to the last
// distance that is needed.
inline void place_counted(const Plan& plan, const Batch& batch,
                          std::vector<std::vector<int64_t>>& counts,
                          const std::vector<int64_t>& begins, const std::vector<int64_t>& ends,
                          Control& control, int32_t* distances, int64_t* indices) {
  const size_t width = batch.bits() + 1;
  std::vector<size_t> bounds(batch.n_queries());
  for (size_t q = 0; q < batch.n_queries(); ++q) {
    int64_t place = begins[q];
    for (size_t d = 0; place < ends[q] && d < width; ++d) {
      // Replaces each count by the place of the first of its codes.
      for (auto& of_range : counts) place += std::exchange(of_range[q * width + d], place);
      bounds[q] = d + 1;
    }
  }
  control.run(plan.n_workers, plan.n_workers, [&](size_t range, size_t worker) {
    Scan(batch, control, worker)
        .visit_below(plan.codes, plan.range_begin(range), plan.range_begin(range + 1),
                     Place{bounds, ends, width, counts[range], distances, indices});
  });
}

}  // namespace densehash
