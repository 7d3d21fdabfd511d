#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "multi.hpp"
#include "plan.hpp"
#include "rings.hpp"

namespace densehash {
namespace {

// Nanoseconds, as in rings.hpp; only their ratios matter, and only for speed.
constexpr double kByteCost = 0.022;      // of a code in a scan for many queries
constexpr double kByteCostOfFew = 0.05;  // for a few
constexpr double kCostOfThread = 1e6;    // of work that pays for its start
// The first kEnough queries show what tables cost; if that is too much, one in kSome of the later
// blocks still tries them.
constexpr size_t kEnough = 32, kSome = 16;

// --- comparing all rows -----------------------------------------------------------------------

// If fewer than one in this many rows may be found, rows are looked up one by one, not scanned.
constexpr size_t kFew = 32;

// The scan of one thread for a batch of queries.
template <class Take>
struct ScanAllowed {
  void visit(size_t begin, size_t end) { scan.visit_below(tables.codes, begin, end, *this); }

  size_t bound(size_t q) const { return takes[q].bound(); }
  void hit(size_t q, size_t distance, size_t row) {
    if (tables.allowed != nullptr && !tables.allowed[row]) return;
    if (distance < takes[q].bound()) takes[q].hit(distance, row);
  }

  const MultiTables& tables;
  Scan scan;
  std::vector<Take> takes;  // of each query
};

// Answers queries by a scan.
template <class Ask, class Put>
void scan(const Kernels& kernels, const std::vector<size_t>& asked, Codes queries,
          const MultiTables& tables, const Ask& ask, Control& control, Put&& put) {
  using Take = typename Ask::ByScan;
  using Visitor = std::unique_ptr<ScanAllowed<Take>>;
  std::vector<uint8_t> together;  // the queries
  for (const size_t q : asked)
    together.insert(together.end(), queries.row(q), queries.row(q) + queries.bytes);
  const Codes left{together.data(), asked.size(), queries.bytes};

  const Layout layout(kernels, left.bytes);
  const size_t most =
      std::clamp(kBatchBytes / ask.bytes_a_query(), size_t{1}, Batch::most_queries(layout));
  visit_batches(
      Plan(left, tables.codes, most, control), control,
      [&](size_t, const Codes& of_batch, size_t) { return Batch(kernels, layout, of_batch); },
      [&](const Batch& batch, size_t worker) {
        return Visitor(new ScanAllowed<Take>{tables, Scan(batch, control, worker),
                                             std::vector<Take>(batch.n_queries(), ask.by_scan())});
      },
      [&](size_t first, std::vector<Visitor>& visitors) {
        std::vector<uint64_t> keys;
        for (size_t q = 0; q < visitors[0]->takes.size(); ++q) {
          keys.clear();
          for (const Visitor& visitor : visitors) visitor->takes[q].finish(keys);
          std::sort(keys.begin(), keys.end());
          put(asked[first + q], keys);
        }
      });
}

// Answers queries by comparing them with some rows, one by one.
template <class Ask, class Put>
void compare(const Kernels& kernels, const std::vector<size_t>& asked, Codes queries, Codes codes,
             const std::vector<int64_t>& rows, const Ask& ask, Control& control, Put&& put) {
  constexpr size_t kRows = 4096;
  control.run(control.n_threads(), asked.size(), [&](size_t task, size_t worker) {
    typename Ask::ByScan take = ask.by_scan();
    std::vector<uint16_t> distances(kRows);
    for (size_t first = 0; first < rows.size(); first += kRows) {
      control.poll(worker);
      const size_t n = std::min(kRows, rows.size() - first);
      kernels.gather(queries.row(asked[task]), codes.data, codes.bytes, rows.data() + first, n,
                     distances.data());
      for (size_t i = 0; i < n; ++i)
        if (distances[i] < take.bound())
          take.hit(distances[i], static_cast<size_t>(rows[first + i]));
    }
    std::vector<uint64_t> keys;
    take.finish(keys);
    std::sort(keys.begin(), keys.end());
    put(asked[task], keys);
  });
}

// The rows that may be found, if they are few.
std::optional<std::vector<int64_t>> few_allowed(const MultiTables& tables) {
  if (tables.allowed == nullptr) return std::nullopt;
  const size_t n = tables.codes.count;
  size_t n_allowed = 0;
  for (size_t row = 0; row < n; ++row) n_allowed += tables.allowed[row] != 0;
  if (n_allowed > n / kFew) return std::nullopt;
  std::vector<int64_t> rows;
  rows.reserve(n_allowed);
  for (size_t row = 0; row < n; ++row)
    if (tables.allowed[row]) rows.push_back(static_cast<int64_t>(row));
  return rows;
}

// --- both searches ----------------------------------------------------------------------------

struct AskNear {
  using ByTables = RowsWithin;
  using ByScan = RowsWithin;
  RowsWithin by_tables() const { return {radius, {}}; }
  RowsWithin by_scan() const { return {radius, {}}; }
  size_t bytes_a_query() const { return 1; }  // the size of the answer is not known before

  size_t radius;
};

struct AskNearest {
  using ByTables = NearestCodes<Stream::any>;
  using ByScan = NearestCodes<Stream::rising>;
  ByTables by_tables() const { return {k, bits}; }
  ByScan by_scan() const { return {k, bits}; }
  size_t bytes_a_query() const { return 2 * k * sizeof(uint64_t) + bits * sizeof(uint32_t); }

  size_t k, bits;
};

// Calls put(query, keys) for every query, with the keys in order: by tables, or by a scan if that
// is cheaper.
template <class Ask, class Put>
void answer(const Kernels& kernels, Codes queries, const MultiTables& tables, const Ask& ask,
            double patience, Control& control, Put&& put) {
  const Codes& codes = tables.codes;
  const double byte_cost = queries.count < kBundle / 2 ? kByteCostOfFew : kByteCost;
  const double budget =
      patience * byte_cost * static_cast<double>(codes.count) * static_cast<double>(codes.bytes);
  const double most = std::max(budget, 0.0) * static_cast<double>(queries.count);
  const size_t n_workers = static_cast<size_t>(
      std::min(static_cast<double>(control.n_threads()), 1 + most / kCostOfThread));
  const size_t block = std::clamp(queries.count / n_workers, size_t{1}, Rings::kQueries);
  const size_t n_blocks = (queries.count + block - 1) / block;

  struct Worker {
    Rings rings;
    typename Ask::ByTables take;
    std::vector<uint64_t> keys;
  };
  std::vector<std::unique_ptr<Worker>> workers(n_workers);
  std::vector<uint8_t> is_left(queries.count, 1);
  std::mutex lock;  // guards the three below
  size_t n_tried = 0, n_answered = 0;
  double spent = 0;
  control.run(n_workers, n_blocks, [&](size_t task, size_t worker) {
    {
      // If tables have cost more than the scans that they saved, only some queries try them.
      const std::lock_guard<std::mutex> guard(lock);
      const double saved = static_cast<double>(n_answered) * budget;
      if (n_tried >= kEnough && spent > saved && task % kSome != 0) return;
    }
    const size_t first = task * block, count = std::min(block, queries.count - first);
    if (!workers[worker])
      workers[worker].reset(
          new Worker{{kernels, tables, budget, control, worker}, ask.by_tables(), {}});
    auto& [rings, take, keys] = *workers[worker];
    rings.open({queries.row(first), count, queries.bytes});
    for (size_t q = 0; q < count; ++q) {
      const bool is_answered = rings.search(q, take);
      keys.clear();
      take.finish(keys);
      if (is_answered) {
        is_left[first + q] = 0;
        std::sort(keys.begin(), keys.end());
        put(first + q, keys);
      }
      const std::lock_guard<std::mutex> guard(lock);
      ++n_tried;
      n_answered += is_answered;
      spent += rings.spent();
    }
  });

  std::vector<size_t> left;
  for (size_t q = 0; q < queries.count; ++q)
    if (is_left[q]) left.push_back(q);
  if (left.empty()) return;
  if (const auto few = few_allowed(tables))
    compare(kernels, left, queries, codes, *few, ask, control, put);
  else
    scan(kernels, left, queries, tables, ask, control, put);
}

}  // namespace

void multi_top_k(const Kernels& kernels, Codes queries, const MultiTables& tables, size_t k,
                 double patience, Control& control, int32_t* distances, int64_t* positions) {
  std::fill(distances, distances + queries.count * k, -1);
  std::fill(positions, positions + queries.count * k, int64_t{-1});
  const size_t there = std::min(k, tables.codes.count);
  if (there == 0 || queries.count == 0) return;
  answer(kernels, queries, tables, AskNearest{there, tables.codes.bits()}, patience, control,
         [&](size_t q, const std::vector<uint64_t>& keys) {
           put_keys(keys, k, distances + q * k, positions + q * k);
         });
}

void multi_within(const Kernels& kernels, Codes queries, const MultiTables& tables, size_t radius,
                  double patience, Control& control, int64_t* limits,
                  const std::function<Room(size_t)>& make_room) {
  std::vector<std::vector<uint64_t>> found(queries.count);
  const AskNear ask{std::min(radius, tables.codes.bits())};
  if (tables.codes.count > 0 && queries.count > 0)
    answer(kernels, queries, tables, ask, patience, control,
           [&](size_t q, const std::vector<uint64_t>& keys) { found[q] = keys; });
  limits[0] = 0;
  for (size_t q = 0; q < queries.count; ++q)
    limits[q + 1] = limits[q] + static_cast<int64_t>(found[q].size());
  const Room room = make_room(static_cast<size_t>(limits[queries.count]));
  for (size_t q = 0; q < queries.count; ++q)
    put_keys(found[q], found[q].size(), room.distances + limits[q], room.indices + limits[q]);
}

}  // namespace densehash
