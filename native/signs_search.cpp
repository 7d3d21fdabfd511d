#include <memory>

#include "signs_exact.hpp"
#include "signs_groups.hpp"

namespace densehash {
namespace {

// Queries that are answered together at most, and that are prepared together.
constexpr size_t kTogether = 1024, kQueries = 8;
// Blocks of the first group that a bound for the others is taken from.
constexpr size_t kFew = 2;
// The nearest groups that are visited before vectors are looked at, and before queries share what
// they read.
constexpr size_t kFirst = 4, kNear = 6;
// Candidates that wait until they are compared together, near the query and farther away, and how
// many are fetched ahead.
constexpr size_t kWaiting = 16, kMany = 32, kAhead = 5;
// Where all rows are compared: queries that share them, and how many of them at a time.
constexpr size_t kSharing = 32, kShared = 32;
// Bytes of a group that are fetched while the one before is scanned.
constexpr size_t kFetched = 2048;
// See SignSettings::stop. Between 2 and 5 it visits the fewest rows, on all sets tried.
constexpr double kHaste = 4;
// A spread, or a stop, from which on nothing is left out.
constexpr float kEverything = 1e30f;
// Entries of an index of one group that are visited as if they were a group.
constexpr size_t kPiece = 2048;
// A query that visits so many entries has its visits dealt out to so many shares, which threads
// take where there are few queries. With or without threads, so that it finds the same.
constexpr size_t kLong = 65536, kShares = 8;

// An entry that may be one of the nearest.
struct Candidate {
  float estimate, least;  // less what it may be off
  uint32_t segment, entry;
  uint32_t row;  // first its entry, which is where its number is read from
};

struct Found {
  bool operator<(const Found& other) const {
    return distance != other.distance ? distance < other.distance : order < other.order;
  }
  float distance;
  int64_t order, position;
};

struct Range {
  size_t begin, end;
};

// The entries of a group.
Range range_of(const SignSegment& segment, size_t group) {
  const int64_t begin = read_once(segment.limits + group);
  const int64_t end = read_once(segment.limits + group + 1);
  if (begin < 0 || begin > end) throw std::runtime_error("the limits of groups do not rise");
  if (static_cast<uint64_t>(end) > segment.n_entries)
    throw std::runtime_error("the limits of groups go beyond the last entry");
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

size_t row_of(const SignSegment& segment, size_t entry) {
  const uint32_t row = read_once(segment.rows + entry);
  if (row >= segment.n_rows) throw std::runtime_error("a row number is beyond the last row");
  return row;
}

size_t rank_of(const SignSegment& segment, size_t row) {
  if (segment.ranks == nullptr) return row;
  const uint32_t rank = read_once(segment.ranks + row);
  if (rank >= segment.n_rows) throw std::runtime_error("a rank is beyond the last row");
  return rank;
}

// A heap of the k nearest, the farthest first.
class Best : public std::vector<Found> {
 public:
  void keep(const Found& found, size_t k) {
    if (size() == k) {
      if (!(found < front())) return;
      std::pop_heap(begin(), end());
      back() = found;
    } else {
      push_back(found);
    }
    std::push_heap(begin(), end());
  }
  // Once they are in order.
  void write(const Ranking& ranking, size_t query) const {
    float* distances = ranking.distances + query * ranking.k;
    int64_t* positions = ranking.positions + query * ranking.k;
    const size_t n = size();
    for (size_t i = 0; i < n; ++i) {
      distances[i] = (*this)[i].distance;
      positions[i] = (*this)[i].position;
    }
    std::fill(distances + n, distances + ranking.k, kInfinite);
    std::fill(positions + n, positions + ranking.k, int64_t{-1});
  }
};

// Rows that were compared.
class Seen {
 public:
  void clear() {
    rows_.assign(kFewest, kNone);
    shift_ = 64 - __builtin_ctzll(kFewest);
    count_ = 0;
  }
  // Whether it is new.
  bool add(uint64_t row) {
    if (4 * ++count_ > 3 * rows_.size()) grow();
    for (size_t at = row * 0x9e3779b97f4a7c15 >> shift_;; ++at) {
      at &= rows_.size() - 1;
      if (rows_[at] == row) return false;
      if (rows_[at] == kNone) {
        rows_[at] = row;
        return true;
      }
    }
  }

 private:
  static constexpr size_t kFewest = 128;
  static constexpr uint64_t kNone = ~uint64_t{0};

  void grow() {
    const std::vector<uint64_t> rows = std::move(rows_);
    rows_.assign(2 * rows.size(), kNone);
    --shift_;
    count_ = 1;
    for (const uint64_t row : rows)
      if (row != kNone) add(row);
  }

  std::vector<uint64_t> rows_;
  int shift_ = 0;
  size_t count_ = 0;
};

// What is known of a query's neighbours.
struct Answer {
  void clear() {
    waiting.clear();
    n_named = 0;
    best.clear();
    bound = kInfinite;
    effort = {0, 0, 0};
  }
  // To go on in another share.
  void go_on_from(const Answer& first, size_t number, size_t its_share) {
    clear();
    best = first.best;
    seen = first.seen;
    bound = first.bound;
    query = first.query;
    of = number;
    share = its_share;
  }
  // Adds what another share found.
  void gather(const Answer& other) {
    best.insert(best.end(), other.best.begin(), other.best.end());
    effort.entries += other.effort.entries;
    effort.vectors += other.effort.vectors;
  }
  // The k best, once each.
  void order(size_t k) {
    std::sort(best.begin(), best.end());
    if (best.size() <= k) return;  // of one share
    seen.clear();
    best.erase(std::remove_if(best.begin(), best.end(),
                              [&](const Found& found) { return !seen.add(found.position); }),
               best.end());
    if (best.size() > k) best.resize(k);
  }

  std::vector<Candidate> waiting;
  size_t n_named = 0;       // of these, whose rows are known
  Best best;
  Seen seen;
  float bound = kInfinite;  // an estimate at this or above is not wanted
  SignEffort effort{};
  size_t query = 0;
  size_t of = 0, share = 0;  // the number of the first share's answer, and which share this is
};

// First each query visits its nearest groups. The other groups come one after the other, each for
// all queries that visit it, so that it is read once. A query sees its groups in the same order
// whatever other queries there are.
template <class Query>
class Searcher {
 public:
  Searcher(const Kernels& kernels, const SignModel& model,
           const std::vector<SignSegment>& segments, const Query* queries,
           const SignSettings& settings)
      : kernels_(kernels), model_(model), segments_(segments), settings_(settings),
        near_(model) {
    size_t n_pieces = 1;
    for (const SignSegment& segment : segments) {
      exact_.push_back(exact_of(model, queries, segment));
      has_twins_ |= segment.n_entries > segment.n_rows;
      n_entries_ += segment.n_entries;
      n_pieces = std::max(n_pieces, (segment.n_entries + kPiece - 1) / kPiece);
    }
    n_places_ = model.n_groups == 1 ? n_pieces : model.n_groups;
  }

  // Visits the nearest groups of the queries that keys name, and notes the others.
  template <class Poll>
  void start(Prepared& prepared, const uint64_t* keys, size_t count, Poll&& poll) {
    if (answers_.size() < count) answers_.resize(count);
    n_queries_ = n_answers_ = count;
    visits_.clear();
    for (size_t i = 0; i < count; ++i) {
      poll();
      answers_[i].clear();
      if (has_twins_) answers_[i].seen.clear();
      answers_[i].query = position_of(keys[i]);
      visit_nearest(prepared, i);
    }
    order_visits();
  }

  // How many threads these visits are worth.
  size_t n_sharing() const {
    return n_answers_ == n_queries_ ? 1 : std::min(kShares, 1 + n_visited(visits_.size()) / kLong);
  }

  // All that start() noted.
  template <class Poll>
  void visit(const Prepared& prepared, Poll&& poll) {
    visit_all(prepared, answers_, visits_, poll);
  }

  // One share of what start() of another noted.
  template <class Poll>
  void help(Searcher& other, const Prepared& prepared, size_t share, Poll&& poll) {
    by_group_.clear();
    for (const Visit& visit : other.visits_)
      if (other.answers_[visit.answer].share == share) by_group_.push_back(visit);
    visit_all(prepared, other.answers_, by_group_, poll);
  }

  void finish(const Ranking& ranking, SignEffort* efforts) {
    for (size_t i = 0; i < n_answers_; ++i) compare(answers_[i]);
    for (size_t i = n_queries_; i < n_answers_; ++i) answers_[answers_[i].of].gather(answers_[i]);
    for (size_t i = 0; i < n_queries_; ++i) {
      Answer& answer = answers_[i];
      answer.order(settings_.k);
      answer.best.write(ranking, answer.query);
      efforts[answer.query] = answer.effort;
    }
  }

 private:
  struct Visit {
    uint32_t group, answer;  // or a piece of the only group
    float distance;          // to its centre
  };

  // Entries that so many visits see, about.
  size_t n_visited(size_t n_visits) const { return n_visits * n_entries_ / n_places_; }

  // The visits of a query from this one on are dealt out to shares.
  void deal(size_t number, size_t first) {
    if (answers_.size() < n_answers_ + kShares - 1) answers_.resize(n_answers_ + kShares - 1);
    for (size_t i = first; i < visits_.size(); ++i) {
      const size_t share = (i - first) % kShares;
      if (share > 0) visits_[i].answer = static_cast<uint32_t>(n_answers_ + share - 1);
    }
    for (size_t share = 1; share < kShares; ++share)
      answers_[n_answers_++].go_on_from(answers_[number], number, share);
  }

  template <class Poll>
  void visit_all(const Prepared& prepared, std::vector<Answer>& answers,
                 const std::vector<Visit>& visits, Poll&& poll) {
    for (size_t begin = 0, end = 0; begin < visits.size(); begin = end) {
      while (end < visits.size() && visits[end].group == visits[begin].group) ++end;
      if (end < visits.size()) fetch_group(visits[end].group);
      for (size_t n; begin < end; begin += n) {
        poll();
        n = std::min(kSignQueries, end - begin);
        visit_together(prepared, answers.data(), visits.data() + begin, n);
      }
    }
  }

  // By group, and those of a group as they come.
  void order_visits() {
    if (visits_.size() < n_places_ / 8) {
      std::sort(visits_.begin(), visits_.end(), [](const Visit& x, const Visit& y) {
        return x.group != y.group ? x.group < y.group : x.answer < y.answer;
      });
      return;
    }
    starts_.assign(n_places_ + 1, 0);
    for (const Visit& visit : visits_) ++starts_[visit.group + 1];
    for (size_t group = 0; group < n_places_; ++group) starts_[group + 1] += starts_[group];
    by_group_.resize(visits_.size());
    for (const Visit& visit : visits_) by_group_[starts_[visit.group]++] = visit;
    visits_.swap(by_group_);
  }

  // Notes the groups that are left.
  void visit_nearest(Prepared& prepared, size_t number) {
    Answer& answer = answers_[number];
    answer.waiting.swap(waiting_);
    near_.start(prepared, answer.query);
    const size_t first = visits_.size();
    float distance = 0;
    float nearest = 0;
    size_t turn = 0;  // of this group, among those that count
    for (size_t i = 0; turn < settings_.probes && near_.has(i); ++i) {
      const size_t group = near_.number(i);
      if (settings_.chosen != nullptr && !settings_.chosen[group]) continue;
      if (turn == 0) nearest = near_.distance(i);
      const float farther = near_.distance(i) - nearest;
      if (farther > limit(turn) * distance_of(answer.bound, prepared.scale(answer.query))) break;
      distance = near_.is_close(i) ? prepared.own(answer.query) + near_.distance(i)
                                   : distance_to_center(model_, prepared, answer.query, group);
      ++answer.effort.groups;
      ++turn;
      if (turn > kNear && answer.bound < kInfinite) {
        visits_.push_back(
            {static_cast<uint32_t>(group), static_cast<uint32_t>(number), distance});
        continue;
      }
      if (near_.is_known(i + 2)) fetch_limits(near_.number(i + 2));
      if (near_.is_known(i + 1)) fetch_group(near_.number(i + 1));
      Answer* const alone = &answer;
      Beside beside = beside_of(prepared, answer, distance);
      for (size_t s = 0; s < segments_.size(); ++s) {
        Range entries = range(segments_[s], group);
        answer.effort.entries += static_cast<int32_t>(entries.end - entries.begin);
        if (answer.bound == kInfinite) {
          const size_t few =
              std::min(entries.end, (entries.begin / kBlock + kFew) * kBlock);
          scan_entries(&alone, &beside, 1, s, {entries.begin, few});
          name_rows(answer);
          tighten(answer);
          beside.want(answer.bound);
          entries.begin = few;
        }
        scan_entries(&alone, &beside, 1, s, entries);
      }
      name_rows(answer);
      if (turn < kFirst)
        tighten(answer);
      else if (answer.waiting.size() >= kWaiting || turn == kFirst || turn == kNear)
        compare(answer);
    }
    answer.waiting.swap(waiting_);
    answer.waiting.reserve(2 * kMany);
    answer.waiting.assign(waiting_.begin(), waiting_.end());
    waiting_.clear();
    if (model_.n_groups == 1)
      for (uint32_t piece = 1; piece < n_places_; ++piece)
        visits_.push_back({piece, static_cast<uint32_t>(number), distance});
    if (n_visited(visits_.size() - first) >= kLong) deal(number, first);
  }

  void visit_together(const Prepared& prepared, Answer* all, const Visit* visits, size_t n) {
    const size_t group = visits->group;
    Answer* answers[kSignQueries];
    Beside besides[kSignQueries];
    for (size_t i = 0; i < n; ++i) {
      answers[i] = all + visits[i].answer;
      besides[i] = beside_of(prepared, *answers[i], visits[i].distance);
    }
    for (size_t s = 0; s < segments_.size(); ++s) {
      const Range entries = range(segments_[s], group);
      for (size_t i = 0; i < n; ++i)
        answers[i]->effort.entries += static_cast<int32_t>(entries.end - entries.begin);
      scan_entries(answers, besides, n, s, entries);
    }
    for (size_t i = 0; i < n; ++i) {
      name_rows(*answers[i]);
      if (answers[i]->waiting.size() >= kMany) compare(*answers[i]);
    }
  }

  Beside beside_of(const Prepared& prepared, const Answer& answer, float distance) const {
    const size_t q = answer.query;
    const float length = model_.metric == Metric::ip ? prepared.length(q) : std::sqrt(distance);
    const float off = settings_.spread < kEverything ? settings_.spread * length : kEverything;
    Beside beside{prepared.tables(q), model_.units, distance, off};
    beside.want(answer.bound);
    return beside;
  }

  // A bound as groups are near or far.
  float distance_of(float bound, float scale) const {
    const float twice = 2 * model_.longest * model_.longest;
    return std::fabs(twice + scale * bound);
  }

  // See SignSettings::stop.
  float limit(size_t i) {
    while (limits_.size() <= i)
      limits_.push_back(
          settings_.stop < kEverything
              ? static_cast<float>(
                    std::log(settings_.stop / static_cast<double>(limits_.size() + 1)) / kHaste)
              : kInfinite);
    return limits_[i];
  }

  // Of a group, or of a piece of the only one.
  Range range(const SignSegment& segment, size_t group) const {
    if (model_.n_groups > 1) return range_of(segment, group);
    const size_t begin = std::min(group * kPiece, segment.n_entries);
    return {begin, std::min(begin + kPiece, segment.n_entries)};
  }

  // Of many segments: that of one is in the cache, or next to it.
  void fetch_limits(size_t group) const {
    if (segments_.size() == 1) return;
    for (const SignSegment& segment : segments_) __builtin_prefetch(segment.limits + group);
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
  }

  void scan_entries(Answer* const* answers, const Beside* besides, size_t n, size_t s,
                    Range entries) {
    if (entries.begin == entries.end) return;
    const SignSegment& segment = segments_[s];
    scan(kernels_, segment.blocks, model_.bits, entries.begin, entries.end, besides, n,
         [&](size_t i, size_t entry, unsigned sum, int alpha, int beta) {
           const float estimate = besides[i].estimate(sum, alpha, beta);
           const float least = alpha == -32768 ? -kInfinite : estimate - besides[i].slack(beta);
           if (!(least < besides[i].bound)) return;
           __builtin_prefetch(segment.rows + entry);
           answers[i]->waiting.push_back(
               {estimate, least, static_cast<uint32_t>(s), static_cast<uint32_t>(entry),
                static_cast<uint32_t>(entry)});
         });
  }

  // Reads the rows of new candidates, and leaves out those that may not be found. Later than they
  // were scanned: by then, what is read here has come to the cache.
  void name_rows(Answer& answer) const {
    std::vector<Candidate>& waiting = answer.waiting;
    size_t kept = answer.n_named;
    for (size_t j = kept; j < waiting.size(); ++j) {
      const SignSegment& segment = segments_[waiting[j].segment];
      waiting[kept] = waiting[j];
      const size_t row = row_of(segment, waiting[j].row);
      waiting[kept].row = static_cast<uint32_t>(row);
      kept += segment.allowed == nullptr || segment.allowed[rank_of(segment, row)];
    }
    waiting.resize(kept);
    answer.n_named = kept;
  }

  // A bound from estimates, before anything is compared: the k-th best. Where rows come twice, the
  // 2k-th best after the first group.
  void tighten(Answer& answer) {
    const bool is_twice = has_twins_ && (answer.effort.groups > 1 || model_.n_groups == 1);
    const size_t n = is_twice ? 2 * settings_.k : settings_.k;
    std::vector<Candidate>& waiting = answer.waiting;
    if (waiting.size() < n) return;
    estimates_.clear();
    for (const Candidate& c : waiting) estimates_.push_back(c.estimate);
    const auto last = estimates_.begin() + static_cast<ptrdiff_t>(n - 1);
    std::nth_element(estimates_.begin(), last, estimates_.end());
    const float bound = std::nextafter(*last, kInfinite);  // these are wanted themselves
    answer.bound = std::min(answer.bound, bound);
    waiting.erase(std::remove_if(waiting.begin(), waiting.end(),
                                 [&](const Candidate& c) { return !(c.least < answer.bound); }),
                  waiting.end());
    answer.n_named = waiting.size();
  }

  // Compares those that may still be among the k nearest, likely ones first.
  void compare(Answer& answer) {
    const std::vector<Candidate>& waiting = answer.waiting;
    const size_t k = settings_.k;
    keys_.clear();
    for (size_t i = 0; i < waiting.size(); ++i)
      if (waiting[i].least < answer.bound)
        keys_.push_back(make_float_key(sortable(waiting[i].estimate), i));
    std::sort(keys_.begin(), keys_.end());
    for (const auto& exact : exact_)
      if (exact) exact->start(answer.query);
    size_t fetched = 0;
    for (size_t i = 0; i < keys_.size(); ++i) {
      for (; fetched < std::min(i + kAhead, keys_.size()); ++fetched) {
        const Candidate& next = waiting[position_of(keys_[fetched])];
        if (answer.best.size() == k && !(next.least < answer.bound)) continue;
        if (exact_[next.segment]) exact_[next.segment]->fetch(next.row);
        const uint32_t* const ranks = segments_[next.segment].ranks;
        if (ranks != nullptr) __builtin_prefetch(ranks + next.row);
      }
      const Candidate& candidate = waiting[position_of(keys_[i])];
      if (answer.best.size() < k || candidate.least < answer.bound) compare(answer, candidate);
    }
    answer.waiting.clear();
    answer.n_named = 0;
  }

  void compare(Answer& answer, const Candidate& candidate) {
    const size_t row = candidate.row;
    const SignSegment& segment = segments_[candidate.segment];
    Best& best = answer.best;
    const int64_t position = segment.first + static_cast<int64_t>(row);
    if (has_twins_ && !answer.seen.add(uint64_t{candidate.segment} << 32 | row)) return;
    ++answer.effort.vectors;
    const Exact* exact = exact_[candidate.segment].get();
    const float distance = exact ? exact->distance(row, candidate.entry)
                                 : from_estimate(candidate.estimate);
    if (best.size() == settings_.k && distance > best.front().distance) return;
    best.keep({distance, segment.first + static_cast<int64_t>(rank_of(segment, row)), position},
              settings_.k);
    if (best.size() == settings_.k) answer.bound = to_estimate(best.front().distance);
  }

  // Estimates are squared distances; for cosine of rows of length 1, for ip twice the distance.
  float from_estimate(float estimate) const {
    if (model_.metric == Metric::l2) return std::sqrt(std::max(estimate, 0.0f));
    return model_.metric == Metric::ip ? estimate / 2 : std::max(estimate / 2, 0.0f);
  }
  float to_estimate(float distance) const {
    return model_.metric == Metric::l2 ? distance * distance : 2 * distance;
  }

  const Kernels& kernels_;
  const SignModel& model_;
  const std::vector<SignSegment>& segments_;
  const SignSettings& settings_;
  std::vector<std::unique_ptr<Exact>> exact_;
  bool has_twins_ = false;
  size_t n_entries_ = 0, n_places_ = 0;  // all, and the groups or pieces that they lie in
  Groups near_;
  std::vector<float> limits_;  // see SignSettings::stop
  size_t n_queries_ = 0, n_answers_ = 0;
  std::vector<Answer> answers_;  // of the queries, then of shares
  std::vector<Visit> visits_;
  std::vector<Candidate> waiting_;  // of the query that visits its nearest groups
  std::vector<Visit> by_group_;
  std::vector<uint32_t> starts_;  // of the visits of a group
  std::vector<float> estimates_;
  std::vector<uint64_t> keys_;
};

// As Control::worth_starting() counts it.
double work_of_query(const SignModel& model, const std::vector<SignSegment>& segments,
                     const SignSettings& settings) {
  double work = 1e5;  // some 30 microseconds
  if (settings.stop >= kEverything)
    for (const SignSegment& segment : segments)
      work += static_cast<double>(segment.n_entries * model.bits / 8);
  return work;
}

}  // namespace

template <class Query>
void search_signs(const Kernels& kernels, const SignModel& model,
                  const std::vector<SignSegment>& segments, const Query* queries, size_t n_queries,
                  const SignSettings& settings, Control& control, const Ranking& ranking,
                  SignEffort* efforts) {
  for (size_t first = 0; first < n_queries; first += kTogether) {
    const size_t count = std::min(kTogether, n_queries - first);
    const Query* here = queries + first * model.width;
    const Ranking to{ranking.distances + first * ranking.k, ranking.positions + first * ranking.k,
                     ranking.k};
    Prepared prepared(model, count);
    const size_t n_tasks = (count + kQueries - 1) / kQueries;
    const double work = static_cast<double>(count) * work_of_query(model, segments, settings);
    // Where there are fewer queries than threads, these share the visits of each.
    const size_t n_workers = count < control.n_threads() ? 1 : control.worth_starting(work);
    std::vector<std::unique_ptr<Prepared::Work>> works(n_workers);
    control.run(n_workers, n_tasks, [&](size_t task, size_t worker) {
      const size_t n = std::min(kQueries, count);
      if (!works[worker]) works[worker] = std::make_unique<Prepared::Work>(model, n);
      control.poll(worker);
      prepared.prepare(here, task * kQueries, std::min(kQueries, count - task * kQueries),
                       *works[worker]);
    });
    // By their nearest region: queries that follow each other often find entries in the cache.
    std::vector<uint64_t> order(count);
    for (size_t q = 0; q < count; ++q)
      order[q] = uint64_t{prepared.nearest_region(q)} << 32 | q;
    std::sort(order.begin(), order.end());
    using Own = std::unique_ptr<Searcher<Query>>;
    const auto make = [&] {
      return std::make_unique<Searcher<Query>>(kernels, model, segments, here, settings);
    };
    if (n_workers == 1) {
      const Own first_one = make();
      const auto poll = [&] { control.poll(0); };
      first_one->start(prepared, order.data(), count, poll);
      const size_t n_sharing = std::min(control.n_threads(), first_one->n_sharing());
      if (n_sharing == 1) {
        first_one->visit(prepared, poll);
      } else {
        std::vector<Own> helpers(n_sharing);
        control.run(n_sharing, kShares, [&](size_t share, size_t worker) {
          if (!helpers[worker]) helpers[worker] = make();
          helpers[worker]->help(*first_one, prepared, share, [&] { control.poll(worker); });
        });
      }
      first_one->finish(to, efforts + first);
      continue;
    }
    const size_t each = (count + n_workers - 1) / n_workers;
    control.run(n_workers, n_workers, [&](size_t task, size_t worker) {
      if (task * each >= count) return;
      const Own searcher = make();
      const auto poll = [&] { control.poll(worker); };
      searcher->start(prepared, order.data() + task * each, std::min(each, count - task * each),
                      poll);
      searcher->visit(prepared, poll);
      searcher->finish(to, efforts + first);
    });
  }
}

void mark_groups(const SignSegment& segment, const uint8_t* allowed, size_t n_groups,
                 uint8_t* out) {
  for (size_t group = 0; group < n_groups; ++group) {
    const Range entries = range_of(segment, group);
    for (size_t i = entries.begin; i < entries.end && !out[group]; ++i)
      out[group] = allowed[rank_of(segment, row_of(segment, i))];
  }
}

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
    std::vector<std::unique_ptr<Exact>> exact(count);
    for (size_t s = 0; s < segments.size(); ++s) {
      for (size_t q = 0; q < count; ++q) {
        exact[q] = exact_of(model, queries, segments[s]);
        exact[q]->start(first + q);
      }
      const auto rough = rough_of(model, segments[s], queries + first * model.width, count);
      const uint32_t* const rows = chosen[s].rows;
      const size_t n = chosen[s].count;
      for (size_t begin = 0; begin < n; begin += kShared) {
        control.poll(worker);
        const size_t end = std::min(begin + kShared, n);
        if (rough) {
          for (size_t i = end; i < std::min(end + kShared, n); ++i) exact[0]->fetch(rows[i]);
          rough->look_at(rows + begin, end - begin);
        }
        for (size_t q = 0; q < count; ++q)
          for (size_t i = begin; i < end; ++i) {
            if (rough) {
              const bool is_full = best[q].size() == ranking.k;
              if (is_full && rough->is_farther(i - begin, q, best[q].front().distance)) continue;
            } else if (q == 0 && i + kAhead < n) {
              exact[q]->fetch(rows[i + kAhead]);
            }
            const int64_t position = segments[s].first + rows[i];
            best[q].keep({exact[q]->distance(rows[i], 0), position, position}, ranking.k);
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

#define SEARCH_SIGNS(Query)                                                                  \
  template void search_signs(const Kernels&, const SignModel&, const std::vector<SignSegment>&, \
                             const Query*, size_t, const SignSettings&, Control&,               \
                             const Ranking&, SignEffort*);                                      \
  template void compare_rows(const SignModel&, const std::vector<SignSegment>&,                 \
                             const std::vector<Chosen>&, const Query*, size_t, Control&,        \
                             const Ranking&, SignEffort*)
SEARCH_SIGNS(float);
SEARCH_SIGNS(uint8_t);
SEARCH_SIGNS(int8_t);

}  // namespace densehash
