// Compares queries with all of some rows: those that a filter leaves, if they are few.
#include <algorithm>
#include <memory>
#include <type_traits>

#include "signs_answer.hpp"
#include "signs_exact.hpp"
#include "signs_rough.hpp"

namespace densehash {
namespace {

// Rows that are fetched ahead.
constexpr size_t kAhead = 5;
// Queries that share rows, and how many rows at a time.
constexpr size_t kSharing = Rough::kQueries, kShared = Rough::kShared;

// If it pays; otherwise nullptr.
template <class Query>
std::unique_ptr<Rough> rough_of(const SignModel& model, const SignSegment& segment,
                                const Query* queries, size_t count) {
  if constexpr (std::is_same_v<Query, float>)
    if (segment.values == Values::float32 && count >= 4)
      return std::make_unique<Rough>(model, segment, queries, count);
  return nullptr;
}

}  // namespace

template <class Query>
void compare_rows(const SignModel& model, const std::vector<SignSegment>& segments,
                  const std::vector<Chosen>& chosen, const Query* queries, size_t n_queries,
                  Control& control, const Ranking& ranking, SignEffort* efforts) {
  size_t n_rows = 0;
  for (const Chosen& some : chosen) n_rows += some.count;
  const double work = static_cast<double>(n_queries * n_rows * model.width);
  const size_t n_threads = control.worth_starting(work);
  // Several queries are compared with a few rows at a time, which stay in the cache.
  const size_t each = std::clamp<size_t>(n_queries / n_threads, 1, kSharing);
  control.run(n_threads, (n_queries + each - 1) / each, [&](size_t part, size_t worker) {
    const size_t first = part * each, count = std::min(each, n_queries - first);
    std::vector<Best> best(count);
    for (Best& each : best) each.reserve(std::min(ranking.k, n_rows));
    std::vector<Exacts> exacts(count);
    for (Exacts& each : exacts) each = exacts_of(model, segments, queries);
    for (size_t s = 0; s < segments.size(); ++s) {
      for (size_t q = 0; q < count; ++q) exacts[q][s]->start(first + q);
      const auto rough = rough_of(model, segments[s], queries + first * model.width, count);
      const auto bound = [&](size_t q) {
        if (rough && best[q].size() == ranking.k) rough->set_bound(q, best[q].front().distance);
      };
      for (size_t q = 0; q < count; ++q) bound(q);  // from earlier segments
      const uint32_t* const rows = chosen[s].rows;
      const size_t n = chosen[s].count;
      for (size_t begin = 0; begin < n; begin += kShared) {
        control.poll(worker);
        const size_t end = std::min(begin + kShared, n);
        const auto compare = [&](size_t q, size_t row) {
          const int64_t position = segments[s].first + static_cast<int64_t>(row);
          best[q].keep({exacts[q][s]->distance(row, 0), position, position}, ranking.k);
        };
        if (rough) {
          rough->look_at(rows + begin, end - begin, n - end);
          if (best[0].size() < ranking.k) rough->want_nearest(ranking.k);
          for (size_t i = begin; i < end; ++i)
            for (uint32_t near = rough->near(i - begin); near != 0; near &= near - 1) {
              const size_t q = static_cast<size_t>(__builtin_ctz(near));
              compare(q, rows[i]);
              bound(q);
            }
          continue;
        }
        for (size_t q = 0; q < count; ++q)
          for (size_t i = begin; i < end; ++i) {
            if (q == 0 && i + kAhead < n) exacts[q][s]->fetch(rows[i + kAhead]);
            compare(q, rows[i]);
          }
      }
    }
    for (size_t q = 0; q < count; ++q) {
      std::sort_heap(best[q].begin(), best[q].end());
      best[q].write(ranking, first + q);
      efforts[first + q] = {0, 0, static_cast<int32_t>(n_rows)};
    }
  });
}

#define COMPARE_ROWS(Query)                                                              \
  template void compare_rows(const SignModel&, const std::vector<SignSegment>&,          \
                             const std::vector<Chosen>&, const Query*, size_t, Control&, \
                             const Ranking&, SignEffort*)
COMPARE_ROWS(float);
COMPARE_ROWS(uint8_t);
COMPARE_ROWS(int8_t);

}  // namespace densehash
