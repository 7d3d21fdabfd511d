#include "rerank.hpp"

#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>

#include "checked.hpp"
#include "least.hpp"
#include "vectors.hpp"

namespace densehash {
namespace {

// Queries that a thread takes at a time.
constexpr size_t kQueries = 16;

// Compares the rows of the candidates. They are far apart in memory: each is fetched while others
// are compared. Not inlined, because it needs all registers.
template <class Measure>
__attribute__((noinline)) void compare(const Measure& measure, const typename Measure::Row* rows,
                                       size_t width, const size_t* positions, size_t count,
                                       typename Measure::Sum* sums) {
  constexpr size_t kAhead = 16, kAheadBytes = 4096;  // few enough to stay in the cache
  const size_t row_bytes = width * sizeof *rows;
  const size_t ahead = std::clamp<size_t>(kAheadBytes / row_bytes, 1, kAhead);
  for (size_t i = 0; i < count; ++i) {
    if (i + ahead < count) {
      const char* row = reinterpret_cast<const char*>(rows + positions[i + ahead] * width);
      for (size_t at = 0; at < row_bytes; at += 64) __builtin_prefetch(row + at);
    }
    sums[i] = measure.sums_of(rows + positions[i] * width);
  }
}

// The state of one thread, whatever the measure.
class Worker {
 public:
  Worker(const Candidates& candidates, size_t k)
      : candidates_(candidates), positions_(candidates.each + 1), least_(candidates.each, k) {}
  virtual ~Worker() = default;

  void find(size_t query, const Ranking& ranking) {
    const size_t found = find_least(query, list(query));
    uint64_t* const keys = least_.keys();
    const size_t n = std::min(found, ranking.k);
    sort(keys, keys + n, keys + found);
    float* distances = ranking.distances + query * ranking.k;
    int64_t* positions = ranking.positions + query * ranking.k;
    for (size_t i = 0; i < n; ++i) {
      distances[i] = float_of(keys[i]);
      positions[i] = static_cast<int64_t>(RowKey::position(keys[i]));
    }
    std::fill(distances + n, distances + ranking.k, std::numeric_limits<float>::infinity());
    std::fill(positions + n, positions + ranking.k, int64_t{-1});
  }

 protected:
  // Sets the keys of the nearest of the rows at the first `count` positions; returns how many.
  virtual size_t find_least(size_t query, size_t count) = 0;

  const Candidates& candidates_;
  std::vector<size_t> positions_;
  Least least_;

 private:
  // Puts the first keys into the order of answers: by distance, then by rank.
  void sort(uint64_t* keys, uint64_t* first, uint64_t* end) {
    std::partial_sort(keys, first, end);
    if (candidates_.ranks == nullptr || keys == first) return;
    const size_t last = RowKey::first(first[-1]);
    end = std::partition(first, end, [=](uint64_t key) { return RowKey::first(key) == last; });
    order_ties<RowKey>(keys, end, [&](size_t position) {
      return rank_of(candidates_.ranks, position, candidates_.n_rows);
    });
  }

  // Lists the positions that are not -1; returns how many.
  size_t list(size_t query) {
    const int64_t* from = candidates_.positions + query * candidates_.each;
    const int64_t n_rows = static_cast<int64_t>(candidates_.n_rows);
    size_t n = 0;
    bool is_bad = false;
    for (size_t i = 0; i < candidates_.each; ++i) {
      const int64_t position = read_once(from + i);
      positions_[n] = static_cast<size_t>(position);
      n += position != -1;
      is_bad |= position < -1 || position >= n_rows;
    }
    if (is_bad) throw std::runtime_error("a position is beyond the last row");
    return n;
  }
};

template <class Measure>
class MeasuringWorker final : public Worker {
 public:
  using Row = typename Measure::Row;

  MeasuringWorker(const Measure& measure, const Row* rows, size_t width,
                  const Candidates& candidates, size_t k)
      : Worker(candidates, k), measure_(measure), rows_(rows), width_(width),
        sums_(candidates.each) {}

 private:
  size_t find_least(size_t query, size_t count) override {
    measure_.start(query);
    if (!measure_.all_sums(rows_, positions_.data(), count, sums_.data()))
      compare(measure_, rows_, width_, positions_.data(), count, sums_.data());
    const size_t found = least_.find(
        count, [&](size_t i) { return measure_.roughly(sums_[i]); }, Measure::surely_farther);
    uint64_t* const keys = least_.keys();
    for (size_t i = 0; i < found; ++i) {
      const size_t at = RowKey::position(keys[i]);
      keys[i] = make_float_key(sortable(measure_.distance(sums_[at])), positions_[at]);
    }
    return found;
  }

  Measure measure_;
  const Row* rows_;
  size_t width_;
  std::vector<typename Measure::Sum> sums_;
};

// Queries ordered by their first candidate, because such neighbours often have the same candidates.
std::vector<std::pair<int64_t, size_t>> order_of(const Candidates& candidates) {
  std::vector<std::pair<int64_t, size_t>> order(candidates.n_queries);
  for (size_t q = 0; q < order.size(); ++q)
    order[q] = {candidates.each > 0 ? candidates.positions[q * candidates.each] : -1, q};
  std::sort(order.begin(), order.end());
  return order;
}

void rerank_with(const std::function<std::unique_ptr<Worker>(size_t k)>& make, size_t row_bytes,
                 const Candidates& candidates, Control& control, const Ranking& ranking) {
  const size_t k = std::clamp<size_t>(ranking.k, 1, std::max<size_t>(candidates.each, 1));
  const auto order = order_of(candidates);
  const double bytes = static_cast<double>(candidates.n_queries * candidates.each) *
                       static_cast<double>(row_bytes);
  const size_t n_workers = control.worth_starting(bytes);
  std::vector<std::unique_ptr<Worker>> workers(n_workers);
  const size_t n_tasks = (candidates.n_queries + kQueries - 1) / kQueries;
  control.run(n_workers, n_tasks, [&](size_t task, size_t worker) {
    if (!workers[worker]) workers[worker] = make(k);
    const size_t end = std::min((task + 1) * kQueries, candidates.n_queries);
    for (size_t i = task * kQueries; i < end; ++i) {
      control.poll(worker);
      workers[worker]->find(order[i].second, ranking);
    }
  });
}

template <class Measure>
void rerank_by(const Measure& measure, const typename Measure::Row* rows, size_t width,
               const Candidates& candidates, Control& control, const Ranking& ranking) {
  const auto make = [&](size_t k) -> std::unique_ptr<Worker> {
    return std::make_unique<MeasuringWorker<Measure>>(measure, rows, width, candidates, k);
  };
  rerank_with(make, width * sizeof *rows, candidates, control, ranking);
}

}  // namespace

// --- vectors -----------------------------------------------------------------------------------

template <class Query, class Value>
void rerank(Metric metric, const Query* queries, const Value* vectors, size_t width,
            const Candidates& candidates, Squares squares, Control& control,
            const Ranking& ranking) {
  const auto by = [&](auto measure) {
    rerank_by(measure, vectors, width, candidates, control, ranking);
  };
  switch (metric) {
    case Metric::l2: return by(VectorMeasure<Metric::l2, Query, Value>(queries, width, squares));
    case Metric::cosine:
      return by(VectorMeasure<Metric::cosine, Query, Value>(queries, width, squares));
    case Metric::ip: return by(VectorMeasure<Metric::ip, Query, Value>(queries, width, squares));
  }
}

#define RERANK(Query, Value)                                                                   \
  template void rerank(Metric, const Query*, const Value*, size_t, const Candidates&, Squares, \
                       Control&, const Ranking&)
RERANK(float, float);
RERANK(float, Half);
RERANK(float, uint8_t);
RERANK(float, int8_t);
RERANK(uint8_t, uint8_t);
RERANK(int8_t, int8_t);

// --- codes -------------------------------------------------------------------------------------

namespace {

// Distances of codes to the margins of one query after another: for each byte of a code, a lookup
// has the cost of its values.
class CodeMeasure {
 public:
  using Row = uint8_t;
  using Sum = double;

  CodeMeasure(const float* margins, size_t bits, size_t bytes)
      : margins_(margins), bits_(bits), lookups_(bytes * 256) {}

  void start(size_t query) {
    const float* margins = margins_ + query * bits_;
    for (size_t bit = 0; bit < lookups_.size() / 32; ++bit) {
      double* lookup = lookups_.data() + bit / 8 * 256;
      const double margin = bit < bits_ ? margins[bit] : 0;
      const double of_zero = std::max(margin, 0.0), of_one = std::max(-margin, 0.0);
      const size_t half = size_t{1} << bit % 8;  // each bit doubles the lookup
      if (half == 1) lookup[0] = 0;
      for (size_t value = 0; value < half; ++value) {
        lookup[half + value] = lookup[value] + of_one;
        lookup[value] += of_zero;
      }
    }
  }

  double sums_of(const uint8_t* code) const {
    double sum = 0;
    for (size_t byte = 0; byte < lookups_.size() / 256; ++byte)
      sum += lookups_[byte * 256 + code[byte]];
    return sum;
  }
  bool all_sums(const uint8_t*, const size_t*, size_t, double*) const { return false; }

  float distance(double sum) const { return static_cast<float>(sum); }
  float roughly(double sum) const { return distance(sum); }
  static float surely_farther(float rough) { return rough; }

 private:
  const float* margins_;
  size_t bits_;
  std::vector<double> lookups_;  // (bytes, 256)
};

}  // namespace

void rerank_codes(const float* margins, size_t bits, Codes codes, const Candidates& candidates,
                  Control& control, const Ranking& ranking) {
  rerank_by(CodeMeasure(margins, bits, codes.bytes), codes.data, codes.bytes, candidates, control,
            ranking);
}

}  // namespace densehash
