#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "signs_compare.hpp"
#include "signs_order.hpp"

namespace densehash {
namespace {

// How many queries are answered together at most, and how many are prepared together.
constexpr size_t kTogether = 1024, kQueries = 8;
// Blocks of the first group that give a bound for the others.
constexpr size_t kFew = 2;
// How many of the nearest groups are visited before vectors are compared, and before queries share
// what they read.
constexpr size_t kFirst = 4, kNear = 6;
// How many candidates wait before they are compared together: in the nearest groups, and in others.
constexpr size_t kWaiting = 16, kMany = 32;
// Blocks that are scanned before their wanted entries are processed.
constexpr size_t kBlocks = 16;
// Bytes of a group that are fetched while the last group is scanned.
constexpr size_t kFetched = 2048;
// See SignSettings::stop. Values between 2 and 5 visit the fewest rows, on all sets tried.
constexpr double kHaste = 4;
// With a spread or a stop from this on, nothing is left out.
constexpr float kEverything = 1e30f;
// If an index has only one group, this many entries are visited as if they were a group.
constexpr size_t kPiece = 2048;
// If a query visits kLong entries, its visits are divided into kShares shares, which threads take
// if there are few queries. It is done with and without threads, so that both find the same.
constexpr size_t kLong = 65536, kShares = 8;

// --- one group, some queries -------------------------------------------------------------------

// A query and a group: turns sums into estimates, and a bound of estimates into one of sums.
struct Beside {
  float estimate(unsigned sum, int alpha, int beta) const {
    const float product = lookup.base + lookup.step * static_cast<float>(sum);
    return distance + (units.alpha * static_cast<float>(alpha) - product) /
                          (units.beta * static_cast<float>(beta));
  }
  // How far an estimate may be above the distance.
  float slack(int beta) const { return spread / (units.beta * static_cast<float>(beta)); }

  // Entries are wanted if their estimates minus their slacks are below the bound.
  void want(float below) {
    bound = below;
    of_sums = bound_of_sums();
  }

  // A bound of sums that misses no wanted entry.
  SignBound bound_of_sums() const {
    constexpr SignBound kAll{0, 0, -32768};
    constexpr float kOne = 32768, kRounding = 4;
    const float of_beta = units.beta * (distance - bound) / lookup.step;
    if (!(of_beta > -1)) return kAll;  // nearly all entries would be wanted
    const auto times = [=](float x) {
      return static_cast<int16_t>(std::min(std::nearbyint(x * kOne), kOne - 1));
    };
    const float offset = std::floor((-lookup.base - spread) / lookup.step) - kRounding;
    return {times(units.alpha / lookup.step), times(of_beta),
            static_cast<int16_t>(std::clamp(offset, -kOne, kOne - 1))};
  }

  SignLookup lookup;
  Units units;
  float distance;  // to the centre, squared
  float spread;    // times |q - c|
  float bound = 0;
  SignBound of_sums{};
};

// Calls keep(q, entry, sum, alpha, beta) for the entries begin..end that up to kSignQueries queries
// want.
template <class Keep>
void scan(const Kernels& kernels, const SignSegment& segment, size_t bits, size_t begin,
          size_t end, const Beside* besides, size_t n_queries, Keep&& keep) {
  uint16_t sums[kSignQueries][kBlocks * kBlock];
  SignRun runs[kSignQueries][kBlocks];
  size_t found[kSignQueries];
  SignQuery queries[kSignQueries];
  for (size_t q = 0; q < n_queries; ++q)
    queries[q] = {besides[q].lookup.bytes, besides[q].of_sums, sums[q], runs[q], found + q};
  const size_t bytes = block_bytes(bits);
  size_t block = begin / kBlock;
  const size_t last = (end + kBlock - 1) / kBlock;
  while (block < last) {
    size_t count = std::min(kBlocks, last - block);
    if (segment.wanted != nullptr) {  // skips blocks in which no entry may be found
      const uint32_t* const wanted = segment.wanted + block;
      count = static_cast<size_t>(std::find(wanted, wanted + count, 0u) - wanted);
      if (count == 0) {
        ++block;
        continue;
      }
    }
    const uint8_t* from = segment.blocks + block * bytes;
    kernels.signs(from, bits, count, queries, n_queries);
    for (size_t q = 0; q < n_queries; ++q) {
      for (size_t i = 0; i < found[q]; ++i) {
        const SignRun run = runs[q][i];
        const size_t entry = (block + run.block) * kBlock;
        uint32_t mask = run.mask;
        if (segment.wanted != nullptr) mask &= segment.wanted[block + run.block];
        if (entry < begin) mask &= ~uint32_t{0} << (begin - entry);
        if (end - entry < kBlock) mask &= (uint32_t{1} << (end - entry)) - 1;
        const uint8_t* at = from + run.block * bytes + 4 * bits;
        for (; mask != 0; mask &= mask - 1) {
          const size_t e = static_cast<size_t>(__builtin_ctz(mask));
          int16_t alpha, beta;
          std::memcpy(&alpha, at + 2 * e, sizeof alpha);
          std::memcpy(&beta, at + 2 * (kBlock + e), sizeof beta);
          keep(q, entry + e, sums[q][i * kBlock + e], alpha, std::max<int>(beta, 1));
        }
      }
    }
    block += count;
  }
}

// --- many groups -------------------------------------------------------------------------------

// First each query visits its nearest groups. Then come the other groups, one after the other, each
// for all queries that visit it, so that it is read once. A query sees its groups in the same order
// whatever the other queries are.
class Searcher {
 public:
  Searcher(const Kernels& kernels, const SignModel& model,
           const std::vector<SignSegment>& segments, const SignSettings& settings, Exacts exacts)
      : kernels_(kernels), model_(model), segments_(segments), settings_(settings),
        comparer_(model, segments, settings.k, std::move(exacts)), near_(model) {
    size_t n_pieces = 1;
    for (const SignSegment& segment : segments) {
      n_entries_ += segment.n_entries;
      n_pieces = std::max(n_pieces, (segment.n_entries + kPiece - 1) / kPiece);
    }
    n_places_ = model.n_groups == 1 ? n_pieces : model.n_groups;
  }

  // Visits the nearest groups of the queries in `keys`, and notes the other visits.
  template <class Poll>
  void start(SignQueries& queries, const uint64_t* keys, size_t count, Poll&& poll) {
    if (answers_.size() < count) answers_.resize(count);
    n_queries_ = n_answers_ = count;
    visits_.clear();
    for (size_t i = 0; i < count; ++i) {
      poll();
      answers_[i].clear();
      if (comparer_.has_twins()) answers_[i].seen.clear();
      answers_[i].query = RowKey::position(keys[i]);
      visit_nearest(queries, i);
    }
    order_visits();
  }

  // How many threads it pays to use for these visits.
  size_t n_sharing() const {
    return n_answers_ == n_queries_ ? 1 : std::min(kShares, 1 + n_visited(visits_.size()) / kLong);
  }

  // Makes all visits that start() noted.
  template <class Poll>
  void visit(const SignQueries& queries, Poll&& poll) {
    visit_all(queries, answers_, visits_, poll);
  }

  // Makes one share of the visits that start() of another Searcher noted.
  template <class Poll>
  void help(Searcher& other, const SignQueries& queries, size_t share, Poll&& poll) {
    by_group_.clear();
    for (const Visit& visit : other.visits_)
      if (other.answers_[visit.answer].share == share) by_group_.push_back(visit);
    visit_all(queries, other.answers_, by_group_, poll);
  }

  void finish(const Ranking& ranking, SignEffort* efforts) {
    for (size_t i = 0; i < n_answers_; ++i) comparer_.compare(answers_[i]);
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
    uint32_t group, answer;  // a group, or a piece of the only group
    float distance;          // to its centre
  };

  // About how many entries this many visits see.
  size_t n_visited(size_t n_visits) const { return n_visits * n_entries_ / n_places_; }

  // Divides the visits of a query, from `first` on, into shares.
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
  void visit_all(const SignQueries& queries, std::vector<Answer>& answers,
                 const std::vector<Visit>& visits, Poll&& poll) {
    for (size_t begin = 0, end = 0; begin < visits.size(); begin = end) {
      while (end < visits.size() && visits[end].group == visits[begin].group) ++end;
      if (end < visits.size()) fetch_group(visits[end].group);
      for (size_t n; begin < end; begin += n) {
        poll();
        n = std::min(kSignQueries, end - begin);
        visit_together(queries, answers.data(), visits.data() + begin, n);
      }
    }
  }

  // Orders visits by group; those of a group keep their order.
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

  // Visits the nearest groups of a query, and notes the others.
  void visit_nearest(SignQueries& queries, size_t number) {
    Answer& answer = answers_[number];
    answer.waiting.swap(waiting_);
    near_.start(queries, answer.query);
    const size_t first = visits_.size();
    float distance = 0;
    float nearest = 0;
    size_t turn = 0;  // the number of this group among those that count
    for (size_t i = 0; turn < settings_.probes && near_.has(i); ++i) {
      const size_t group = near_.number(i);
      if (settings_.chosen != nullptr && !settings_.chosen[group]) continue;
      if (turn == 0) nearest = near_.distance(i);
      const float farther = near_.distance(i) - nearest;
      if (farther > limit(turn) * distance_of(answer.bound, queries.scale(answer.query))) break;
      distance = near_.is_close(i) ? queries.own(answer.query) + near_.distance(i)
                                   : queries.distance_to_center(answer.query, group);
      ++answer.effort.groups;
      ++turn;
      if (turn > kNear && answer.bound < kInfinite) {
        visits_.push_back({static_cast<uint32_t>(group), static_cast<uint32_t>(number), distance});
        continue;
      }
      if (near_.is_known(i + 2)) fetch_limits(near_.number(i + 2));
      if (near_.is_known(i + 1)) fetch_group(near_.number(i + 1));
      Answer* const alone = &answer;
      Beside beside = beside_of(queries, answer, distance);
      for (size_t s = 0; s < segments_.size(); ++s) {
        Range entries = range(segments_[s], group);
        answer.effort.entries += static_cast<int32_t>(entries.end - entries.begin);
        if (answer.bound == kInfinite) {
          const size_t few = std::min(entries.end, (entries.begin / kBlock + kFew) * kBlock);
          scan_entries(&alone, &beside, 1, s, {entries.begin, few});
          comparer_.name_rows(answer);
          comparer_.tighten(answer);
          beside.want(answer.bound);
          entries.begin = few;
        }
        scan_entries(&alone, &beside, 1, s, entries);
      }
      comparer_.name_rows(answer);
      if (turn < kFirst)
        comparer_.tighten(answer);
      else if (answer.waiting.size() >= kWaiting || turn == kFirst || turn == kNear)
        comparer_.compare(answer);
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

  void visit_together(const SignQueries& queries, Answer* all, const Visit* visits, size_t n) {
    const size_t group = visits->group;
    Answer* answers[kSignQueries];
    Beside besides[kSignQueries];
    for (size_t i = 0; i < n; ++i) {
      answers[i] = all + visits[i].answer;
      besides[i] = beside_of(queries, *answers[i], visits[i].distance);
    }
    for (size_t s = 0; s < segments_.size(); ++s) {
      const Range entries = range(segments_[s], group);
      for (size_t i = 0; i < n; ++i)
        answers[i]->effort.entries += static_cast<int32_t>(entries.end - entries.begin);
      scan_entries(answers, besides, n, s, entries);
    }
    for (size_t i = 0; i < n; ++i) {
      comparer_.name_rows(*answers[i]);
      if (answers[i]->waiting.size() >= kMany) comparer_.compare(*answers[i]);
    }
  }

  Beside beside_of(const SignQueries& queries, const Answer& answer, float distance) const {
    const size_t q = answer.query;
    const float length = model_.metric == Metric::ip ? queries.length(q) : std::sqrt(distance);
    const float off = settings_.spread < kEverything ? settings_.spread * length : kEverything;
    Beside beside{queries.lookup(q), model_.units, distance, off};
    beside.want(answer.bound);
    return beside;
  }

  // A bound, on the scale of distances to groups.
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

  // The entries of a group, or of a piece of the only one.
  Range range(const SignSegment& segment, size_t group) const {
    if (model_.n_groups > 1) return segment.range(group);
    const size_t begin = std::min(group * kPiece, segment.n_entries);
    return {begin, std::min(begin + kPiece, segment.n_entries)};
  }

  // Only for several segments: the limits of a single one are in the cache, or next to it.
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
    scan(kernels_, segment, model_.bits, entries.begin, entries.end, besides, n,
         [&](size_t i, size_t entry, unsigned sum, int alpha, int beta) {
           const float estimate = besides[i].estimate(sum, alpha, beta);
           const float least = alpha == -32768 ? -kInfinite : estimate - besides[i].slack(beta);
           if (!(least < besides[i].bound)) return;
           __builtin_prefetch(segment.rows + entry);
           answers[i]->waiting.push_back({estimate, least, static_cast<uint32_t>(s),
                                          static_cast<uint32_t>(entry),
                                          static_cast<uint32_t>(entry)});
         });
  }

  const Kernels& kernels_;
  const SignModel& model_;
  const std::vector<SignSegment>& segments_;
  const SignSettings& settings_;
  Comparer comparer_;
  size_t n_entries_ = 0, n_places_ = 0;  // all entries, and their groups or pieces
  GroupOrder near_;
  std::vector<float> limits_;  // see SignSettings::stop
  size_t n_queries_ = 0, n_answers_ = 0;
  std::vector<Answer> answers_;  // of the queries, then of shares
  std::vector<Visit> visits_;
  std::vector<Candidate> waiting_;  // of the query that visits its nearest groups
  std::vector<Visit> by_group_;
  std::vector<uint32_t> starts_;  // of the visits of a group
};

// In the unit of Control::worth_starting().
double work_of_query(const SignModel& model, const std::vector<SignSegment>& segments,
                     const SignSettings& settings) {
  double work = 1e5;  // about 30 microseconds
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
    SignQueries prepared(model, count);
    const size_t n_tasks = (count + kQueries - 1) / kQueries;
    const double work = static_cast<double>(count) * work_of_query(model, segments, settings);
    // If there are fewer queries than threads, threads share the visits of each query.
    const size_t n_workers = count < control.n_threads() ? 1 : control.worth_starting(work);
    std::vector<std::unique_ptr<SignQueries::Work>> works(n_workers);
    control.run(n_workers, n_tasks, [&](size_t task, size_t worker) {
      const size_t n = std::min(kQueries, count);
      if (!works[worker]) works[worker] = std::make_unique<SignQueries::Work>(model, n);
      control.poll(worker);
      prepared.prepare(here, task * kQueries, std::min(kQueries, count - task * kQueries),
                       *works[worker]);
    });
    // Ordered by nearest region, so that queries often find the entries of the last query in the
    // cache.
    std::vector<uint64_t> order(count);
    for (size_t q = 0; q < count; ++q) order[q] = RowKey::make(prepared.nearest_region(q), q);
    std::sort(order.begin(), order.end());
    using Own = std::unique_ptr<Searcher>;
    const auto make = [&] {
      return std::make_unique<Searcher>(kernels, model, segments, settings,
                                        exacts_of(model, segments, here));
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
    const Range entries = segment.range(group);
    for (size_t i = entries.begin; i < entries.end && !out[group]; ++i)
      out[group] = allowed[segment.rank(segment.row(i))];
  }
}

void mark_entries(const SignSegment& segment, const uint8_t* allowed, uint32_t* out) {
  std::fill_n(out, (segment.n_entries + kBlock - 1) / kBlock, 0u);
  for (size_t i = 0; i < segment.n_entries; ++i)
    if (allowed[segment.rank(segment.row(i))]) out[i / kBlock] |= uint32_t{1} << i % kBlock;
}

#define SEARCH_SIGNS(Query)                                                                       \
  template void search_signs(const Kernels&, const SignModel&, const std::vector<SignSegment>&,   \
                             const Query*, size_t, const SignSettings&, Control&, const Ranking&, \
                             SignEffort*)
SEARCH_SIGNS(float);
SEARCH_SIGNS(uint8_t);
SEARCH_SIGNS(int8_t);

}  // namespace densehash
