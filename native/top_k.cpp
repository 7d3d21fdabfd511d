#include <cmath>
#include <memory>
#include <mutex>

#include "count.hpp"
#include "plan.hpp"
#include "search.hpp"
#include "select.hpp"

namespace densehash {
namespace {

// Above this k, the candidates of a batch would need too much memory: codes are counted and placed.
constexpr size_t kMostSelected = 2048;

// Stream::any would take 8% (k = 10) to 33% (k = 1000) more instructions.
using Nearest = NearestCodes<Stream::rising>;

// The candidates of one thread for the queries of a batch.
struct Select {
  Select(const Batch& batch, const Codes& codes, size_t k, Control& control, size_t worker)
      : codes(codes), scan(batch, control, worker),
        nearest(batch.n_queries(), Nearest(k, codes.bits())) {}
  Select(const Batch& batch, const Codes& codes, size_t k, const std::vector<size_t>& bounds,
         Control& control, size_t worker)
      : codes(codes), scan(batch, control, worker) {
    nearest.reserve(bounds.size());
    for (const size_t bound : bounds) nearest.emplace_back(k, codes.bits(), bound);
  }

  void visit(size_t begin, size_t end) { scan.visit_below(codes, begin, end, *this); }

  size_t bound(size_t q) const { return nearest[q].bound(); }
  void hit(size_t q, size_t distance, size_t code) {
    if (distance < nearest[q].bound()) nearest[q].hit(distance, code);
  }

  const Codes& codes;
  Scan scan;
  std::vector<Nearest> nearest;
};

// A batch, and for each of its queries a distance at which candidates are too far.
struct Bounded {
  Batch batch;
  std::vector<size_t> bounds;
};

// One in kSample codes is compared first. The bound from this sample is right for most queries, and
// saves them nine tenths of their candidates; a query that finds too few with it is searched again.
constexpr size_t kSample = 64, kSampled = 64;
constexpr size_t kFewestSelected = 32, kFewestCodes = 64 * 1024;

bool worth_a_sample(const Codes& codes, size_t k) {
  return k >= kFewestSelected && codes.count >= std::max(kFewestCodes, 64 * k);
}

std::vector<size_t> bounds_from_sample(const Batch& batch, const Codes& codes, size_t k,
                                       Control& control, size_t worker) {
  const double expected = static_cast<double>(k) / kSample;
  const auto enough = static_cast<size_t>(expected + 3 * std::sqrt(expected)) + 1;
  // Pieces from all over the codes, because near codes are often neighbours.
  const size_t step = codes.count / kSampled;
  Select sample(batch, codes, enough, control, worker);
  for (size_t piece = 0; piece < kSampled; ++piece)
    sample.visit(piece * step, piece * step + step / kSample);
  std::vector<size_t> bounds;
  bounds.reserve(batch.n_queries());
  for (const Nearest& nearest : sample.nearest)
    bounds.push_back(std::min(nearest.bound(), codes.bits()) + 1);
  return bounds;
}

// Writes the k least keys by counting distances, in a fifth of the time of a sort; keys are in
// order of position, or sorted.
void place_by_distance(const std::vector<uint64_t>& keys, size_t k, int32_t* distances,
                       int64_t* indices) {
  std::vector<uint32_t> places;
  for (const uint64_t key : keys) {
    const size_t distance = HammingKey::first(key);
    if (distance + 2 > places.size()) places.resize(distance + 2);
    ++places[distance + 1];
  }
  for (size_t d = 1; d < places.size(); ++d) places[d] += places[d - 1];
  for (const uint64_t key : keys) {
    const size_t place = places[HammingKey::first(key)]++;
    if (place >= k) continue;
    distances[place] = static_cast<int32_t>(HammingKey::first(key));
    indices[place] = static_cast<int64_t>(HammingKey::position(key));
  }
}

// Candidates are kept in memory. With a sample, queries that found too few are added to `again`.
void select_nearest(const Kernels& kernels, Codes queries, Codes codes, size_t k, size_t width,
                    Control& control, int32_t* distances, int64_t* indices,
                    std::vector<size_t>* again) {
  const Layout layout(kernels, codes.bytes);
  const size_t most = fitting(2 * k * sizeof(uint64_t) + codes.bits() * sizeof(uint32_t));
  const Plan plan(queries, codes, std::min(Batch::most_queries(layout), most), control);
  std::mutex lock;  // guards `again`
  using Visitor = std::unique_ptr<Select>;
  visit_batches(
      plan, control,
      [&](size_t, const Codes& of_batch, size_t worker) {
        Batch batch(kernels, layout, of_batch);
        std::vector<size_t> bounds(of_batch.count, codes.bits() + 1);
        if (again != nullptr && of_batch.count > 0)
          bounds = bounds_from_sample(batch, codes, k, control, worker);
        return Bounded{std::move(batch), std::move(bounds)};
      },
      [&](const Bounded& bounded, size_t worker) {
        return std::make_unique<Select>(bounded.batch, plan.codes, k, bounded.bounds, control,
                                        worker);
      },
      [&](size_t first, std::vector<Visitor>& visitors) {
        std::vector<uint64_t> keys;
        for (size_t q = 0; q < visitors[0]->nearest.size(); ++q) {
          keys.clear();
          for (const Visitor& visitor : visitors) visitor->nearest[q].finish(keys);
          if (keys.size() < k) {
            const std::lock_guard<std::mutex> guard(lock);
            again->push_back(first + q);
            continue;
          }
          if (visitors.size() > 1) std::sort(keys.begin(), keys.end());
          place_by_distance(keys, k, distances + (first + q) * width,
                            indices + (first + q) * width);
        }
      });
}

void top_k_selected(const Kernels& kernels, Codes queries, Codes codes, size_t k, size_t width,
                    Control& control, int32_t* distances, int64_t* indices) {
  if (!worth_a_sample(codes, k)) {
    select_nearest(kernels, queries, codes, k, width, control, distances, indices, nullptr);
    return;
  }
  std::vector<size_t> again;
  select_nearest(kernels, queries, codes, k, width, control, distances, indices, &again);
  if (again.empty()) return;
  std::vector<uint8_t> some(again.size() * codes.bytes);
  for (size_t i = 0; i < again.size(); ++i)
    std::copy_n(queries.row(again[i]), codes.bytes, some.data() + i * codes.bytes);
  std::vector<int32_t> near(again.size() * k);
  std::vector<int64_t> where(again.size() * k);
  select_nearest(kernels, {some.data(), again.size(), codes.bytes}, codes, k, k, control,
                 near.data(), where.data(), nullptr);
  for (size_t i = 0; i < again.size(); ++i) {
    std::copy_n(near.data() + i * k, k, distances + again[i] * width);
    std::copy_n(where.data() + i * k, k, indices + again[i] * width);
  }
}

// Keeps only counts: reads the codes twice, and writes them where the counts say.
void top_k_counted(const Kernels& kernels, Codes queries, Codes codes, size_t k, size_t width,
                   Control& control, int32_t* distances, int64_t* indices) {
  const Layout layout(kernels, codes.bytes);
  const size_t most = fitting(Counter::bytes_a_query(codes));
  const Plan plan(queries, codes, std::min(Batch::most_queries(layout), most), control);
  for (size_t b = 0; b < plan.n_batches; ++b) {
    std::vector<std::vector<int64_t>> counts(plan.n_workers);
    control.run(plan.n_workers, plan.n_workers, [&](size_t range, size_t worker) {
      Counter counter(kernels, plan.batch(b), codes);
      counter.visit(plan.range_begin(range), plan.range_begin(range + 1), control, worker,
                    [](size_t, const auto*, size_t, size_t) {});
      counts[range] = std::move(counter.counts());
    });
    const Batch batch(kernels, layout, plan.batch(b));
    std::vector<int64_t> begins(batch.n_queries()), ends(batch.n_queries());
    for (size_t q = 0; q < batch.n_queries(); ++q) {
      begins[q] = static_cast<int64_t>((plan.first_query(b) + q) * width);
      ends[q] = begins[q] + static_cast<int64_t>(k);
    }
    place_counted(plan, batch, counts, begins, ends, control, distances, indices);
  }
}

}  // namespace

void top_k(const Kernels& kernels, Codes queries, Codes codes, size_t k, Control& control,
           int32_t* distances, int64_t* indices) {
  const size_t there = std::min(k, codes.count);
  for (size_t q = 0; q < queries.count; ++q) {
    std::fill(distances + q * k + there, distances + (q + 1) * k, -1);
    std::fill(indices + q * k + there, indices + (q + 1) * k, int64_t{-1});
  }
  if (there == 0 || queries.count == 0) return;
  const auto nearest = there <= kMostSelected ? top_k_selected : top_k_counted;
  nearest(kernels, queries, codes, there, k, control, distances, indices);
}

}  // namespace densehash
