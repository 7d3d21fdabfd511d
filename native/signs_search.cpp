#include <memory>

#include "signs_exact.hpp"
#include "signs_groups.hpp"

namespace densehash {
namespace {

// Queries that are prepared before the first is answered, and that a thread takes at a time.
constexpr size_t kPrepared = 1024, kQueries = 8;
// Blocks of the first group that a bound for the others is taken from.
constexpr size_t kFew = 2;
// Groups that are visited before vectors are looked at.
constexpr size_t kFirst = 3;
// Candidates that wait until they are compared together, and how many are fetched ahead.
constexpr size_t kWaiting = 16, kAhead = 4;
// Bytes of a group that are fetched while the one before is scanned.
constexpr size_t kFetched = 8192;
// Groups that are put in order at once.
constexpr size_t kOrdered = 16;
// See SignSettings::stop. Between 2 and 5 it visits the fewest rows, on all sets tried.
constexpr double kHaste = 4;

// An entry that may be one of the nearest.
struct Candidate {
  float estimate, least;  // less what it may be off
  uint32_t segment, entry;
};

struct Found {
  bool operator<(const Found& other) const {
    return distance != other.distance ? distance < other.distance : order < other.order;
  }
  float distance;
  int64_t order, position;
};

// Rows that were looked at, for one query after another.
class Seen {
 public:
  void clear() {
    if (++round_ == 0) {
      std::fill(rounds_.begin(), rounds_.end(), 0);
      round_ = 1;
    }
    count_ = 0;
  }
  // Whether it is new.
  bool add(uint64_t row) {
    if (2 * ++count_ > rows_.size()) grow();
    for (size_t at = row * 0x9e3779b97f4a7c15 >> shift_;; ++at) {
      at &= rows_.size() - 1;
      if (rounds_[at] != round_) {
        rounds_[at] = round_;
        rows_[at] = row;
        return true;
      }
      if (rows_[at] == row) return false;
    }
  }

 private:
  void grow() {
    std::vector<uint64_t> rows;
    for (size_t i = 0; i < rows_.size(); ++i)
      if (rounds_[i] == round_) rows.push_back(rows_[i]);
    const size_t size = std::max<size_t>(256, 2 * rows_.size());
    rows_.assign(size, 0);
    rounds_.assign(size, 0);
    round_ = 1;
    shift_ = 64 - static_cast<unsigned>(__builtin_ctzll(size));
    count_ = 1;
    for (const uint64_t row : rows) add(row);
  }

  std::vector<uint64_t> rows_;
  std::vector<uint32_t> rounds_;
  uint32_t round_ = 0;
  unsigned shift_ = 0;
  size_t count_ = 0;
};

template <class Query>
class Searcher {
 public:
  Searcher(const Kernels& kernels, const SignModel& model,
           const std::vector<SignSegment>& segments, const Query* queries,
           const SignSettings& settings)
      : kernels_(kernels), model_(model), segments_(segments), settings_(settings) {
    for (const SignSegment& segment : segments) {
      exact_.push_back(exact_of(model.metric, queries, segment, model.width));
      has_twins_ |= segment.n_entries > segment.n_rows;
    }
  }

  void find(Prepared& prepared, size_t q, const Ranking& ranking, SignEffort& effort) {
    for (const auto& exact : exact_)
      if (exact) exact->start(q);
    best_.clear();
    waiting_.clear();
    seen_.clear();
    bound_ = kInfinite;
    effort_ = {0, 0, 0};
    uint64_t* const visits = prepared.visits(q);
    const size_t n = std::min(prepared.n_visits(q), settings_.probes);
    size_t ordered = 0;  // so many groups
    for (size_t i = 0; i < n; ++i) {
      if (i == ordered) {
        ordered = std::min(ordered + std::max(kOrdered, ordered / 2), prepared.n_visits(q));
        order_groups(visits, prepared.n_visits(q), i, ordered);
      }
      const float farther = float_of(visits[i]) - float_of(visits[0]);
      if (farther > limit(i) * std::fabs(bound_)) break;
      if (i + 1 < ordered) fetch_group(position_of(visits[i + 1]));
      const float distance = distance_to_center(model_, prepared, q, position_of(visits[i]));
      const float length =
          model_.metric == Metric::ip ? prepared.length(q) : std::sqrt(distance);
      const Beside beside{prepared.tables(q), model_.units, distance, settings_.spread * length};
      for (size_t s = 0; s < segments_.size(); ++s) visit_group(beside, s, position_of(visits[i]));
      ++effort_.groups;
      if (i + 1 < kFirst)
        tighten();
      else if (waiting_.size() >= kWaiting || i + 1 == kFirst)
        compare();
    }
    compare();
    write(q, ranking);
    effort = effort_;
  }

 private:
  // See SignSettings::stop.
  float limit(size_t i) {
    while (limits_.size() <= i)
      limits_.push_back(static_cast<float>(
          std::log(settings_.stop / static_cast<double>(limits_.size() + 1)) / kHaste));
    return limits_[i];
  }

  struct Range {
    size_t begin, end;
  };
  static Range range(const SignSegment& segment, size_t group) {
    const int64_t begin = read_once(segment.limits + group);
    const int64_t end = read_once(segment.limits + group + 1);
    if (begin < 0 || begin > end) throw std::runtime_error("the limits of groups do not rise");
    if (static_cast<uint64_t>(end) > segment.n_entries)
      throw std::runtime_error("the limits of groups go beyond the last entry");
    return {static_cast<size_t>(begin), static_cast<size_t>(end)};
  }

  void fetch_group(size_t group) const {
    const size_t bytes = block_bytes(model_.bits);
    for (const SignSegment& segment : segments_) {
      const Range entries = range(segment, group);
      const size_t begin = entries.begin / kBlock, end = (entries.end + kBlock - 1) / kBlock;
      const uint8_t* const blocks = segment.blocks + begin * bytes;
      for (size_t at = 0; at < std::min(kFetched, (end - begin) * bytes); at += 64)
        __builtin_prefetch(blocks + at, 0, 2);
    }
    const float* const center = model_.centers + group * model_.width;
    for (size_t at = 0; at < model_.width; at += 16) __builtin_prefetch(center + at);
  }

  void visit_group(const Beside& beside, size_t s, size_t group) {
    const Range entries = range(segments_[s], group);
    if (entries.begin == entries.end) return;
    effort_.entries += static_cast<int32_t>(entries.end - entries.begin);
    size_t from = entries.begin;
    if (bound_ == kInfinite) {
      from = std::min(entries.end, (entries.begin / kBlock + kFew) * kBlock);
      scan_entries(beside, s, entries.begin, from);
      tighten();
    }
    if (from < entries.end) scan_entries(beside, s, from, entries.end);
  }

  void scan_entries(const Beside& beside, size_t s, size_t begin, size_t end) {
    const SignSegment& segment = segments_[s];
    scan(kernels_, segment.blocks, model_.bits, begin, end, beside.tables.bytes,
         beside.bound_of_sums(bound_), [&](size_t entry, unsigned sum, int alpha, int beta) {
           const float estimate = beside.estimate(sum, alpha, beta);
           const float least = alpha == -32768 ? -kInfinite : estimate - beside.slack(beta);
           if (!(least < bound_)) return;
           __builtin_prefetch(segment.rows + entry);
           if (segment.allowed != nullptr && !segment.allowed[rank(segment, row(segment, entry))])
             return;
           waiting_.push_back(
               {estimate, least, static_cast<uint32_t>(s), static_cast<uint32_t>(entry)});
         });
  }

  static size_t row(const SignSegment& segment, size_t entry) {
    const uint32_t row = read_once(segment.rows + entry);
    if (row >= segment.n_rows) throw std::runtime_error("a row number is beyond the last row");
    return row;
  }
  static size_t rank(const SignSegment& segment, size_t row) {
    if (segment.ranks == nullptr) return row;
    const uint32_t rank = read_once(segment.ranks + row);
    if (rank >= segment.n_rows) throw std::runtime_error("a rank is beyond the last row");
    return rank;
  }

  // A bound from estimates, before anything is compared: the k-th best. Where rows come twice, the
  // 2k-th best after the first group.
  void tighten() {
    const bool is_twice = has_twins_ && (effort_.groups > 0 || model_.n_groups == 1);
    const size_t n = is_twice ? 2 * settings_.k : settings_.k;
    if (waiting_.size() < n) return;
    estimates_.clear();
    for (const Candidate& c : waiting_) estimates_.push_back(c.estimate);
    const auto last = estimates_.begin() + static_cast<ptrdiff_t>(n - 1);
    std::nth_element(estimates_.begin(), last, estimates_.end());
    bound_ = std::min(bound_, std::nextafter(*last, kInfinite));  // these are wanted themselves
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                  [&](const Candidate& c) { return !(c.least < bound_); }),
                   waiting_.end());
  }

  // Compares those that may still be among the k nearest, likely ones first.
  void compare() {
    keys_.clear();
    for (size_t i = 0; i < waiting_.size(); ++i)
      if (waiting_[i].least < bound_)
        keys_.push_back(make_float_key(sortable(waiting_[i].estimate), i));
    std::sort(keys_.begin(), keys_.end());
    rows_.resize(keys_.size());
    size_t fetched = 0;
    for (size_t i = 0; i < keys_.size(); ++i) {
      for (; fetched < std::min(i + kAhead, keys_.size()); ++fetched) {
        const Candidate& next = waiting_[position_of(keys_[fetched])];
        if (best_.size() == settings_.k && !(next.least < bound_)) continue;
        rows_[fetched] = row(segments_[next.segment], next.entry);
        if (exact_[next.segment]) exact_[next.segment]->fetch(rows_[fetched]);
      }
      const Candidate& candidate = waiting_[position_of(keys_[i])];
      if (best_.size() < settings_.k || candidate.least < bound_) compare(candidate, rows_[i]);
    }
    waiting_.clear();
  }

  void compare(const Candidate& candidate, size_t row) {
    const SignSegment& segment = segments_[candidate.segment];
    if (has_twins_ && !seen_.add(uint64_t{candidate.segment} << 32 | row)) return;
    ++effort_.vectors;
    const Exact* exact = exact_[candidate.segment].get();
    const float distance = exact ? exact->distance(row) : from_estimate(candidate.estimate);
    if (best_.size() == settings_.k && distance > best_.front().distance) return;
    const Found found{distance, segment.first + static_cast<int64_t>(rank(segment, row)),
                      segment.first + static_cast<int64_t>(row)};
    if (best_.size() == settings_.k) {
      if (!(found < best_.front())) return;
      std::pop_heap(best_.begin(), best_.end());
      best_.back() = found;
    } else {
      best_.push_back(found);
    }
    std::push_heap(best_.begin(), best_.end());
    if (best_.size() == settings_.k) bound_ = to_estimate(best_.front().distance);
  }

  // Estimates are squared distances; for cosine of rows of length 1, for ip twice the distance.
  float from_estimate(float estimate) const {
    if (model_.metric == Metric::l2) return std::sqrt(std::max(estimate, 0.0f));
    return model_.metric == Metric::ip ? estimate / 2 : std::max(estimate / 2, 0.0f);
  }
  float to_estimate(float distance) const {
    return model_.metric == Metric::l2 ? distance * distance : 2 * distance;
  }

  void write(size_t q, const Ranking& ranking) {
    std::sort_heap(best_.begin(), best_.end());
    float* distances = ranking.distances + q * ranking.k;
    int64_t* positions = ranking.positions + q * ranking.k;
    const size_t n = best_.size();
    for (size_t i = 0; i < n; ++i) {
      distances[i] = best_[i].distance;
      positions[i] = best_[i].position;
    }
    std::fill(distances + n, distances + ranking.k, kInfinite);
    std::fill(positions + n, positions + ranking.k, int64_t{-1});
  }

  const Kernels& kernels_;
  const SignModel& model_;
  const std::vector<SignSegment>& segments_;
  const SignSettings& settings_;
  std::vector<std::unique_ptr<Exact>> exact_;
  bool has_twins_ = false;
  std::vector<float> limits_;  // see SignSettings::stop
  std::vector<Candidate> waiting_;
  std::vector<float> estimates_;
  std::vector<uint64_t> keys_;
  std::vector<size_t> rows_;
  std::vector<Found> best_;  // a heap, the farthest first
  Seen seen_;
  float bound_ = kInfinite;  // an estimate at this or above is not wanted
  SignEffort effort_{};
};

}  // namespace

WholeCenters::WholeCenters(const float* centers, size_t count, size_t width, Metric metric) {
  const size_t padded_count = (count + 7) / 8 * 8, padded_width = (width + 15) / 16 * 16;
  numbers.resize(padded_count * padded_width);
  steps.resize(padded_count);
  squares.resize(padded_count);
  for (size_t i = 0; i < count; ++i, centers += width) {
    steps[i] = to_whole(centers, width, numbers.data() + i * padded_width);
    if (metric != Metric::ip)
      squares[i] = static_cast<float>(sums<Metric::ip>(centers, centers, width).sum);
  }
}

template <class Query>
void search_signs(const Kernels& kernels, const SignModel& model,
                  const std::vector<SignSegment>& segments, const Query* queries, size_t n_queries,
                  const SignSettings& settings, Control& control, const Ranking& ranking,
                  SignEffort* efforts) {
  for (size_t first = 0; first < n_queries; first += kPrepared) {
    const size_t count = std::min(kPrepared, n_queries - first);
    const Query* here = queries + first * model.width;
    const Ranking to{ranking.distances + first * ranking.k, ranking.positions + first * ranking.k,
                     ranking.k};
    Prepared prepared(model, settings, count);
    const size_t n_tasks = (count + kQueries - 1) / kQueries;
    const double work = static_cast<double>(count) * 1e5;  // some 30 microseconds each
    const size_t n_workers = control.worth_starting(work);
    std::vector<std::unique_ptr<Prepared::Work>> works(n_workers);
    control.run(n_workers, n_tasks, [&](size_t task, size_t worker) {
      const size_t n = std::min(kQueries, count);
      if (!works[worker]) works[worker] = std::make_unique<Prepared::Work>(model, settings, n);
      control.poll(worker);
      prepared.prepare(here, task * kQueries, std::min(kQueries, count - task * kQueries),
                       *works[worker]);
    });
    // By their first group: queries that follow each other often find entries in the cache.
    std::vector<uint64_t> order(count);
    for (size_t q = 0; q < count; ++q)
      order[q] = uint64_t{position_of(prepared.visits(q)[0])} << 32 | q;
    std::sort(order.begin(), order.end());
    std::vector<std::unique_ptr<Searcher<Query>>> searchers(n_workers);
    control.run(n_workers, n_tasks, [&](size_t task, size_t worker) {
      if (!searchers[worker])
        searchers[worker] =
            std::make_unique<Searcher<Query>>(kernels, model, segments, here, settings);
      const size_t end = std::min((task + 1) * kQueries, count);
      for (size_t i = task * kQueries; i < end; ++i) {
        control.poll(worker);
        const size_t q = position_of(order[i]);
        searchers[worker]->find(prepared, q, to, efforts[first + q]);
      }
    });
  }
}

#define SEARCH_SIGNS(Query)                                                                  \
  template void search_signs(const Kernels&, const SignModel&, const std::vector<SignSegment>&, \
                             const Query*, size_t, const SignSettings&, Control&,               \
                             const Ranking&, SignEffort*)
SEARCH_SIGNS(float);
SEARCH_SIGNS(uint8_t);
SEARCH_SIGNS(int8_t);

}  // namespace densehash
