// All of some rows compared with queries: those that a filter leaves, where they are few.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>

#include "signs_answer.hpp"
#include "signs_exact.hpp"
#include "vectors.hpp"

namespace densehash {
namespace {

// Rows that are fetched ahead.
constexpr size_t kAhead = 5;
// Queries that share rows, and how many rows at a time.
constexpr size_t kSharing = 32, kShared = 32;

// Which of a few rows may be among the nearest of some queries, by products in floats: these are
// made for several rows and queries at a time, which takes a fraction of a comparison.
class Rough {
 public:
  Rough(const SignModel& model, const SignSegment& segment, const float* queries, size_t count)
      : metric_(model.metric), width_(model.width),
        vectors_(static_cast<const float*>(segment.vectors)), queries_(queries), count_(count),
        squares_(count), products_(kShared * count) {
    // More than rounding does to a product and two squares, as a share of the squares.
    error_ = 4 * static_cast<float>(width_ + 8) * 0x1p-24f;
    for (size_t q = 0; q < count; ++q) squares_[q] = square_of(queries + q * width_);
  }

  // Of rows, at most kShared.
  void look_at(const uint32_t* rows, size_t n) {
    for (size_t i = 0; i < n; i += kRows) {
      const float* some[kRows];
      for (size_t r = 0; r < kRows; ++r) some[r] = vectors_ + width_ * rows[std::min(i + r, n - 1)];
      for (size_t r = 0; r < kRows && i + r < n; ++r) of_rows_[i + r] = square_of(some[r]);
      for (size_t q = 0; q < count_; q += kColumns) multiply(some, i, std::min(n - i, kRows), q);
    }
  }

  // Whether row number i is farther from query q than the bound, whatever rounding does.
  bool is_farther(size_t i, size_t q, float bound) const {
    const float product = products_[q * kShared + i], of_row = of_rows_[i], own = squares_[q];
    const float error = error_ * (of_row + own);
    if (metric_ == Metric::l2) return of_row + own - 2 * product - error > bound * bound;
    if (metric_ == Metric::ip) return -product - error > bound;
    return product + error < (1 - bound) * std::sqrt(of_row * own);
  }

 private:
  static constexpr size_t kRows = 2, kColumns = 4;

  float square_of(const float* vector) const {
    return static_cast<float>(sums<Metric::ip>(vector, vector, width_).sum);
  }

  void multiply(const float* const* rows, size_t first, size_t n, size_t query) {
    const float* of[kColumns];
    for (size_t c = 0; c < kColumns; ++c)
      of[c] = queries_ + width_ * std::min(query + c, count_ - 1);
    Floats4 sums[kRows][kColumns] = {};
    size_t i = 0;
    for (; i + 4 <= width_; i += 4) {
      Floats4 x[kRows];
      for (size_t r = 0; r < kRows; ++r) std::memcpy(&x[r], rows[r] + i, sizeof x[r]);
      for (size_t c = 0; c < kColumns; ++c) {
        Floats4 y;
        std::memcpy(&y, of[c] + i, sizeof y);
        for (size_t r = 0; r < kRows; ++r) sums[r][c] += x[r] * y;
      }
    }
    for (size_t r = 0; r < n; ++r)
      for (size_t c = 0; c < kColumns && query + c < count_; ++c) {
        const Floats4& four = sums[r][c];
        float sum = (four[0] + four[1]) + (four[2] + four[3]);
        for (size_t at = i; at < width_; ++at) sum += rows[r][at] * of[c][at];
        products_[(query + c) * kShared + first + r] = sum;
      }
  }

  Metric metric_;
  size_t width_;
  const float *vectors_, *queries_;
  size_t count_;
  float error_;
  float of_rows_[kShared];                 // squares
  std::vector<float> squares_, products_;  // of queries, and (queries, rows)
};

// Where it is worth it.
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
  // Some queries are compared with a few rows after the other, which are in the cache then.
  const size_t each = std::clamp<size_t>(n_queries / n_threads, 1, kSharing);
  control.run(n_threads, (n_queries + each - 1) / each, [&](size_t part, size_t worker) {
    const size_t first = part * each, count = std::min(each, n_queries - first);
    std::vector<Best> best(count);
    std::vector<Exacts> exacts(count);
    for (Exacts& each : exacts) each = exacts_of(model, segments, queries);
    for (size_t s = 0; s < segments.size(); ++s) {
      for (size_t q = 0; q < count; ++q) exacts[q][s]->start(first + q);
      const auto rough = rough_of(model, segments[s], queries + first * model.width, count);
      const uint32_t* const rows = chosen[s].rows;
      const size_t n = chosen[s].count;
      for (size_t begin = 0; begin < n; begin += kShared) {
        control.poll(worker);
        const size_t end = std::min(begin + kShared, n);
        if (rough) {
          for (size_t i = end; i < std::min(end + kShared, n); ++i) exacts[0][s]->fetch(rows[i]);
          rough->look_at(rows + begin, end - begin);
        }
        for (size_t q = 0; q < count; ++q)
          for (size_t i = begin; i < end; ++i) {
            if (rough) {
              const bool is_full = best[q].size() == ranking.k;
              if (is_full && rough->is_farther(i - begin, q, best[q].front().distance)) continue;
            } else if (q == 0 && i + kAhead < n) {
              exacts[q][s]->fetch(rows[i + kAhead]);
            }
            const int64_t position = segments[s].first + rows[i];
            best[q].keep({exacts[q][s]->distance(rows[i], 0), position, position}, ranking.k);
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
