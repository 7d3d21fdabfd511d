#include "search.hpp"

#include <memory>
#include <utility>

#include "select.hpp"

namespace densehash {
namespace {

// Above this k the candidates of a batch would fill too much memory: count and place instead.
constexpr size_t kMostSelected = 2048;
// Memory for a batch's candidates or counts, for each thread.
constexpr size_t kBatchBytes = 4 * 1024 * 1024;
// Codes that a thread takes at a time.
constexpr size_t kChunk = 32768;
// Work that pays for the start of another thread: bytes of codes times queries.
constexpr double kWorkOfThread = 4e6;

// How the queries are cut into batches, and how many threads are worth their start.
struct Plan {
  Plan(const Kernels& kernels, Codes queries, Codes codes, const Control& control,
       size_t bytes_a_query)
      : kernels(kernels), queries(queries), codes(codes), layout(kernels, codes.bytes) {
    const size_t most = std::max(kBatchBytes / bytes_a_query / kGroup, size_t{1}) * kGroup;
    batch_size = std::min(Batch::good_size(layout, queries.count), most);
    n_batches = (queries.count + batch_size - 1) / batch_size;
    const double work = static_cast<double>(codes.count) * static_cast<double>(codes.bytes) *
                        static_cast<double>(queries.count);
    n_workers = static_cast<size_t>(
        std::min(static_cast<double>(control.n_threads()), 1 + work / kWorkOfThread));
  }

  size_t first_query(size_t batch) const { return batch * batch_size; }

  Batch make_batch(size_t batch) const {
    const size_t first = first_query(batch);
    const size_t count = std::min(batch_size, queries.count - first);
    return Batch(kernels, layout, Codes{queries.row(first), count, queries.bytes});
  }

  // The codes in n_workers even ranges, in order of position.
  size_t range_begin(size_t range) const {
    const size_t each = codes.count / n_workers, more = codes.count % n_workers;
    return range * each + std::min(range, more);
  }

  const Kernels& kernels;
  Codes queries, codes;
  Layout layout;
  size_t batch_size, n_batches, n_workers;
};

// Visits all codes for every batch. make(batch) gives a visitor, visit(scan, begin, end, visitor)
// shows it codes, and finish(first query, visitors) takes what the visitors of a batch have seen.
// Batches run side by side where there are many, and otherwise one by one, the codes shared out
// to one visitor a thread.
template <class Make, class Visit, class Finish>
void visit_batches(const Plan& plan, Control& control, Make&& make, Visit&& visit,
                   Finish&& finish) {
  using Visitor = decltype(make(std::declval<const Batch&>()));
  const size_t n_codes = plan.codes.count;
  if (plan.n_workers == 1 || plan.n_batches >= 4 * plan.n_workers) {
    control.run(plan.n_workers, plan.n_batches, [&](size_t b, size_t worker) {
      const Batch batch = plan.make_batch(b);
      std::vector<std::unique_ptr<Visitor>> visitor;
      visitor.push_back(std::make_unique<Visitor>(make(batch)));
      Scan scan(batch, control, worker);
      visit(scan, 0, n_codes, *visitor[0]);
      finish(plan.first_query(b), visitor);
    });
    return;
  }
  for (size_t b = 0; b < plan.n_batches; ++b) {
    const Batch batch = plan.make_batch(b);
    std::vector<std::unique_ptr<Visitor>> visitors(plan.n_workers);
    std::vector<std::unique_ptr<Scan>> scans(plan.n_workers);
    control.run(plan.n_workers, (n_codes + kChunk - 1) / kChunk, [&](size_t chunk, size_t worker) {
      if (!visitors[worker]) {
        visitors[worker] = std::make_unique<Visitor>(make(batch));
        scans[worker] = std::make_unique<Scan>(batch, control, worker);
      }
      const size_t begin = chunk * kChunk;
      visit(*scans[worker], begin, std::min(begin + kChunk, n_codes), *visitors[worker]);
    });
    visitors.erase(std::remove(visitors.begin(), visitors.end(), nullptr), visitors.end());
    finish(plan.first_query(b), visitors);
  }
}

// Counts at each distance for the queries of a batch: (queries, bits + 1).
struct Counts {
  explicit Counts(const Batch& batch)
      : width(batch.bits() + 1), values(batch.n_queries() * width) {}
  int64_t* of(size_t query) { return values.data() + query * width; }

  size_t width;
  std::vector<int64_t> values;
};

// --- the visitors ------------------------------------------------------------------------------

struct Select {
  Select(const Batch& batch, size_t k)
      : selectors(batch.n_queries(), Selector(k, batch.bits())) {}

  size_t bound(size_t q) const { return selectors[q].bound(); }
  void hit(size_t q, size_t distance, size_t code) {
    if (distance < selectors[q].bound()) selectors[q].push(distance, code);
  }

  std::vector<Selector> selectors;
};

struct CountAll {
  explicit CountAll(const Batch& batch) : counts(batch) {}

  template <class D>
  void operator()(const Tile<D>& tile) {
    for (size_t lane = 0; lane < tile.n_queries; ++lane) {
      int64_t* of_query = counts.of(tile.first_query + lane);
      const D* entry = tile.distances + lane;
      for (size_t i = 0; i < tile.count; ++i, entry += tile.lanes) ++of_query[*entry];
    }
  }

  Counts counts;
};

// Puts codes below bounds[query] where they belong: places says where the next one at a
// distance goes; what would go beyond ends[query] is not wanted.
struct Place {
  size_t bound(size_t q) const { return bounds[q]; }
  void hit(size_t q, size_t distance, size_t code) {
    const int64_t place = places.of(q)[distance]++;
    if (place >= ends[q]) return;
    distances[place] = static_cast<int32_t>(distance);
    indices[place] = static_cast<int64_t>(code);
  }

  const std::vector<size_t>& bounds;
  const std::vector<int64_t>& ends;
  Counts& places;
  int32_t* distances;
  int64_t* indices;
};

// Gives take(query, key) all codes up to a radius.
template <class Take>
struct Near {
  size_t bound(size_t) const { return radius + 1; }
  void hit(size_t q, size_t distance, size_t code) { take(q, make_key(distance, code)); }

  size_t radius;
  Take take;
};

// --- the k nearest -----------------------------------------------------------------------------

void write_nearest(std::vector<uint64_t>& keys, size_t k, int32_t* distances, int64_t* indices) {
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < std::min(k, keys.size()); ++i) {
    distances[i] = static_cast<int32_t>(key_distance(keys[i]));
    indices[i] = static_cast<int64_t>(key_position(keys[i]));
  }
}

// Candidates are kept in memory.
void top_k_selected(const Kernels& kernels, Codes queries, Codes codes, size_t k, size_t width,
                    Control& control, int32_t* distances, int64_t* indices) {
  const size_t bytes_a_query = 2 * k * sizeof(uint64_t) + codes.bits() * sizeof(uint32_t);
  const Plan plan(kernels, queries, codes, control, bytes_a_query);
  visit_batches(
      plan, control, [&](const Batch& batch) { return Select(batch, k); },
      [&](Scan& scan, size_t begin, size_t end, Select& select) {
        scan.visit_below(codes, begin, end, select);
      },
      [&](size_t first, std::vector<std::unique_ptr<Select>>& visitors) {
        std::vector<uint64_t> keys;
        for (size_t q = 0; q < visitors[0]->selectors.size(); ++q) {
          keys.clear();
          for (const auto& visitor : visitors) visitor->selectors[q].finish(keys);
          const size_t row = (first + q) * width;
          write_nearest(keys, k, distances + row, indices + row);
        }
      });
}

// Nothing is kept but counts: the codes are read twice, and written where the counts say.
void top_k_counted(const Kernels& kernels, Codes queries, Codes codes, size_t k, size_t width,
                   Control& control, int32_t* distances, int64_t* indices) {
  const Plan plan(kernels, queries, codes, control, (codes.bits() + 1) * sizeof(int64_t));
  for (size_t b = 0; b < plan.n_batches; ++b) {
    const Batch batch = plan.make_batch(b);
    std::vector<CountAll> ranges(plan.n_workers, CountAll(batch));
    control.run(plan.n_workers, plan.n_workers, [&](size_t range, size_t worker) {
      Scan(batch, control, worker)
          .visit_all(codes, plan.range_begin(range), plan.range_begin(range + 1), ranges[range]);
    });
    // From how many there are at a distance to where the first of them goes.
    std::vector<size_t> bounds(batch.n_queries());
    std::vector<int64_t> ends(batch.n_queries());
    for (size_t q = 0; q < batch.n_queries(); ++q) {
      int64_t place = static_cast<int64_t>((plan.first_query(b) + q) * width);
      ends[q] = place + static_cast<int64_t>(k);
      for (size_t d = 0; place < ends[q]; ++d) {
        for (CountAll& range : ranges)
          place += std::exchange(range.counts.of(q)[d], place);
        bounds[q] = d + 1;
      }
    }
    control.run(plan.n_workers, plan.n_workers, [&](size_t range, size_t worker) {
      Place place{bounds, ends, ranges[range].counts, distances, indices};
      Scan(batch, control, worker)
          .visit_below(codes, plan.range_begin(range), plan.range_begin(range + 1), place);
    });
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

// --- all within a radius -----------------------------------------------------------------------

namespace {

// A code that was found, before there is room for it in the output.
struct Found {
  size_t query;
  uint64_t key;
};
// What a thread keeps of them; if there are more, the codes are read a second time.
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
  const Plan plan(kernels, queries, codes, control, sizeof(int64_t));
  // Every range of codes is visited by one thread; take(range) gives what takes its finds.
  const auto visit = [&](auto&& take) {
    for (size_t b = 0; b < plan.n_batches; ++b) {
      const Batch batch = plan.make_batch(b);
      const size_t first = plan.first_query(b);
      control.run(plan.n_workers, plan.n_workers, [&](size_t range, size_t worker) {
        auto take_one = [&](size_t q, uint64_t key) { take(range, first + q, key); };
        Near<decltype(take_one)> near{radius, take_one};
        Scan(batch, control, worker)
            .visit_below(codes, plan.range_begin(range), plan.range_begin(range + 1), near);
      });
    }
  };

  std::vector<std::vector<int64_t>> places(plan.n_workers, std::vector<int64_t>(n_queries));
  std::vector<std::vector<Found>> found(plan.n_workers);
  visit([&](size_t range, size_t q, uint64_t key) {
    ++places[range][q];
    if (found[range].size() <= kMostFound) found[range].push_back({q, key});
  });
  // From how many there are to where the first of them goes.
  int64_t total = 0;
  for (size_t q = 0; q < n_queries; ++q) {
    limits[q] = total;
    for (auto& of_range : places) total += std::exchange(of_range[q], total);
  }
  limits[n_queries] = total;
  const Room room = make_room(static_cast<size_t>(total));

  // The indices hold whole keys until they are sorted.
  const auto place = [&](size_t range, size_t q, uint64_t key) {
    room.indices[places[range][q]++] = static_cast<int64_t>(key);
  };
  const bool all_kept = std::all_of(found.begin(), found.end(), [](const auto& of_range) {
    return of_range.size() <= kMostFound;
  });
  if (all_kept) {
    for (size_t range = 0; range < found.size(); ++range)
      for (const Found& one : found[range]) place(range, one.query, one.key);
  } else {
    visit(place);
  }
  control.run(plan.n_workers, n_queries, [&](size_t q, size_t worker) {
    control.poll(worker);
    std::sort(room.indices + limits[q], room.indices + limits[q + 1]);
    for (int64_t i = limits[q]; i < limits[q + 1]; ++i) {
      const uint64_t key = static_cast<uint64_t>(room.indices[i]);
      room.distances[i] = static_cast<int32_t>(key_distance(key));
      room.indices[i] = static_cast<int64_t>(key_position(key));
    }
  });
}

// --- distances and their counts ----------------------------------------------------------------

void distances(const Kernels& kernels, Codes queries, Codes codes, Control& control,
               uint16_t* distances) {
  constexpr size_t kCodes = 4096, kQueries = 64;
  if (queries.count == 0 || codes.count == 0) return;
  const size_t n_blocks = (codes.count + kCodes - 1) / kCodes;
  const size_t n_tasks = n_blocks * ((queries.count + kQueries - 1) / kQueries);
  control.run(control.n_threads(), n_tasks, [&](size_t task, size_t worker) {
    control.poll(worker);
    const size_t first = task % n_blocks * kCodes, first_query = task / n_blocks * kQueries;
    const size_t count = std::min(kCodes, codes.count - first);
    for (size_t q = first_query; q < std::min(first_query + kQueries, queries.count); ++q)
      kernels.row16(queries.row(q), codes.row(first), codes.bytes, count,
                    distances + q * codes.count + first);
  });
}

void histogram(const Kernels& kernels, Codes queries, Codes codes, Control& control,
               int64_t* counts) {
  if (queries.count == 0 || codes.count == 0) return;
  const size_t width = codes.bits() + 1;
  const Plan plan(kernels, queries, codes, control, width * sizeof(int64_t));
  visit_batches(
      plan, control, [&](const Batch& batch) { return CountAll(batch); },
      [&](Scan& scan, size_t begin, size_t end, CountAll& count) {
        scan.visit_all(codes, begin, end, count);
      },
      [&](size_t first, std::vector<std::unique_ptr<CountAll>>& visitors) {
        int64_t* of_batch = counts + first * width;
        for (const auto& visitor : visitors)
          for (size_t i = 0; i < visitor->counts.values.size(); ++i)
            of_batch[i] += visitor->counts.values[i];
      });
}

void histogram_at(const Kernels& kernels, Codes queries, Codes codes, const int64_t* limits,
                  const int64_t* positions, Control& control, int64_t* counts) {
  const size_t width = codes.bits() + 1;
  constexpr int64_t kStep = 65536;  // so that a long list can be interrupted
  control.run(control.n_threads(), queries.count, [&](size_t q, size_t worker) {
    for (int64_t i = limits[q]; i < limits[q + 1]; i += kStep) {
      control.poll(worker);
      const int64_t n = std::min(kStep, limits[q + 1] - i);
      kernels.count_at(queries.row(q), codes.data, codes.bytes, positions + i,
                       static_cast<size_t>(n), counts + q * width);
    }
  });
}

}  // namespace densehash
