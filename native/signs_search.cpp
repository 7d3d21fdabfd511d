#include <memory>
#include <stdexcept>

#include "least.hpp"
#include "signs.hpp"
#include "vectors.hpp"

namespace densehash {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
// Queries that are prepared before the first is answered, and that a thread takes at a time.
constexpr size_t kPrepared = 4096, kQueries = 8;
// Blocks that are scanned before what was found is looked at.
constexpr size_t kBlocks = 16, kFew = 2;
// Candidates that wait, while their vectors are fetched, until they are compared together.
constexpr size_t kWaiting = 16;
// Bytes of a group that are fetched while the one before is scanned.
constexpr size_t kFetched = 8192;
// Groups that are put in order at once, at first.
constexpr size_t kOrdered = 32;
// See SignSettings::stop. Between 2 and 5 it visits the fewest rows, on all sets tried.
constexpr double kHaste = 4;

// --- estimates ---------------------------------------------------------------------------------

// <s, G q> is base + step * (the sum of what the tables say).
struct Tables {
  const uint8_t* bytes;
  float step, base;
};

// Tables of up to 63 of the products with all 16 signs of four rows of G.
Tables make_tables(const float* products, size_t bits, float least_step, uint8_t* bytes) {
  float widest = 0, base = 0;
  for (size_t b = 0; b < bits; b += 4) {
    const float half = (std::fabs(products[b]) + std::fabs(products[b + 1])) +
                       (std::fabs(products[b + 2]) + std::fabs(products[b + 3]));
    widest = std::max(widest, half);
    base -= half;
  }
  const float step = std::max(2 * widest / 63, least_step);
  const float times = 1 / step;
  for (size_t b = 0; b < bits; b += 4, bytes += 16) {
    float values[16];
    const float w[4] = {products[b] * times, products[b + 1] * times, products[b + 2] * times,
                        products[b + 3] * times};
    values[0] = 0.5f;  // a positive product counts with a sign of 1, a negative one with -1
    for (size_t i = 0; i < 4; ++i) values[0] -= 2 * std::min(w[i], 0.0f);
    for (size_t i = 0; i < 4; ++i)
      for (size_t v = 0, half = size_t{1} << i; v < half; ++v)
        values[v + half] = values[v] + 2 * w[i];
    for (size_t v = 0; v < 16; ++v)
      bytes[v] = static_cast<uint8_t>(std::clamp(static_cast<int>(values[v]), 0, 63));
  }
  return {bytes - bits * 4, step, base};
}

// A query beside a group: what turns sums into estimates, and a bound into one of sums.
struct Beside {
  float estimate(unsigned sum, int alpha, int beta) const {
    const float product = tables.base + tables.step * static_cast<float>(sum);
    return distance + (units.alpha * static_cast<float>(alpha) - product) /
                          (units.beta * static_cast<float>(beta));
  }
  // How far an estimate may be above the distance.
  float slack(int beta) const { return spread / (units.beta * static_cast<float>(beta)); }

  // No entry whose estimate less its slack is below `bound` is missed.
  SignBound bound_of_sums(float bound) const {
    constexpr SignBound kAll{0, 0, -32768};
    constexpr float kOne = 32768, kRounding = 4;
    const float of_beta = units.beta * (distance - bound) / tables.step;
    if (!(of_beta > -1)) return kAll;  // nearly all would be wanted
    const auto times = [=](float x) {
      return static_cast<int16_t>(std::min(std::nearbyint(x * kOne), kOne - 1));
    };
    const float offset = std::floor((-tables.base - spread) / tables.step) - kRounding;
    return {times(units.alpha / tables.step), times(of_beta),
            static_cast<int16_t>(std::clamp(offset, -kOne, kOne - 1))};
  }

  Tables tables;
  Units units;
  float distance;  // to the centre, squared
  float spread;    // times |q - c|
};

// Shows keep(entry, sum, alpha, beta) the wanted ones of the entries begin..end.
template <class Keep>
void scan(const Kernels& kernels, const uint8_t* blocks, size_t bits, size_t begin, size_t end,
          const uint8_t* tables, SignBound bound, Keep&& keep) {
  uint16_t sums[kBlocks * kBlock];
  SignRun runs[kBlocks];
  const size_t bytes = block_bytes(bits);
  size_t block = begin / kBlock;
  const size_t last = (end + kBlock - 1) / kBlock;
  while (block < last) {
    const size_t count = std::min(kBlocks, last - block);
    const uint8_t* from = blocks + block * bytes;
    const size_t found = kernels.signs(from, bits, count, tables, bound, sums, runs);
    for (size_t i = 0; i < found; ++i) {
      const size_t entry = (block + runs[i].block) * kBlock;
      uint32_t mask = runs[i].mask;
      if (entry < begin) mask &= ~uint32_t{0} << (begin - entry);
      if (end - entry < kBlock) mask &= (uint32_t{1} << (end - entry)) - 1;
      const uint8_t* at = from + runs[i].block * bytes + 4 * bits;
      for (; mask != 0; mask &= mask - 1) {
        const size_t e = static_cast<size_t>(__builtin_ctz(mask));
        int16_t alpha, beta;
        std::memcpy(&alpha, at + 2 * e, sizeof alpha);
        std::memcpy(&beta, at + 2 * (kBlock + e), sizeof beta);
        keep(entry + e, sums[i * kBlock + e], alpha, std::max<int>(beta, 1));
      }
    }
    block += count;
  }
}

// --- what is known of a query ------------------------------------------------------------------

// Queries made ready: relative to the shift, with tables, and the groups that they visit.
class Prepared {
 public:
  Prepared(const SignModel& model, const SignSettings& settings, size_t n_queries)
      : model_(model), room_(room_for(model, settings)), columns_(model.bits + model.center_bits),
        relative_(n_queries * model.width), bytes_(n_queries * columns_ * 4), own_(n_queries),
        lengths_(n_queries), rows_(n_queries), centers_(n_queries),
        visits_(n_queries * room_), counts_(n_queries) {}

  template <class Query>
  void prepare(const Query* queries, size_t first, size_t count) {
    std::vector<int8_t> whole(model_.padded_width);
    std::vector<int32_t> sums(columns_);
    std::vector<float> products(columns_);
    for (size_t q = first; q < first + count; ++q) {
      own_[q] = make_relative(queries + q * model_.width, q);
      const float unit = make_whole(relative(q), whole.data());
      model_.dots(whole.data(), model_.matrix, model_.padded_width, columns_, sums.data());
      for (size_t b = 0; b < columns_; ++b)
        products[b] = model_.steps[b] * unit * static_cast<float>(sums[b]);
      uint8_t* bytes = bytes_.data() + q * columns_ * 4;
      rows_[q] = make_tables(products.data(), model_.bits, model_.units.alpha, bytes);
      centers_[q] = make_tables(products.data() + model_.bits, model_.center_bits,
                                model_.center_units.alpha, bytes + model_.bits * 4);
    }
  }

  const float* relative(size_t q) const { return relative_.data() + q * model_.width; }
  // What distances to centres are measured from: |q|², or minus twice the product with the shift.
  float own(size_t q) const { return own_[q]; }
  float length(size_t q) const { return lengths_[q]; }  // of a query, where the metric is ip
  const Tables& of_rows(size_t q) const { return rows_[q]; }
  const Tables& of_centers(size_t q) const { return centers_[q]; }

  // The groups that may be visited: as many as asked for and some more, for chance.
  static size_t room_for(const SignModel& model, const SignSettings& settings) {
    return std::min(settings.probes + settings.probes / 8 + 8, model.n_groups);
  }
  size_t room() const { return room_; }
  // Keys of their estimated distances, the least first, the others in any order.
  uint64_t* visits(size_t q) { return visits_.data() + q * room_; }
  size_t& n_visits(size_t q) { return counts_[q]; }

 private:
  template <class Query>
  float make_relative(const Query* query, size_t q) {
    float* to = relative_.data() + q * model_.width;
    for (size_t i = 0; i < model_.width; ++i) to[i] = to_float(query[i]);
    if (model_.metric == Metric::ip) {
      const double squared = sums<Metric::ip>(to, to, model_.width).sum;
      lengths_[q] = static_cast<float>(std::sqrt(squared));
      return static_cast<float>(-2 * sums<Metric::ip>(to, model_.shift, model_.width).sum);
    }
    float times = 1;
    if (model_.metric == Metric::cosine) {
      const double length = std::sqrt(sums<Metric::ip>(to, to, model_.width).sum);
      times = length > 0 ? static_cast<float>(1 / length) : 0;
    }
    for (size_t i = 0; i < model_.width; ++i) to[i] = to[i] * times - model_.shift[i];
    return static_cast<float>(sums<Metric::ip>(to, to, model_.width).sum);
  }

  // A query in whole numbers up to 127; returns what 1 stands for.
  float make_whole(const float* query, int8_t* to) const {
    float largest = 0;
    for (size_t i = 0; i < model_.width; ++i) largest = std::max(largest, std::fabs(query[i]));
    if (!(largest > 0)) {
      std::fill_n(to, model_.width, int8_t{0});
      return 0;
    }
    const float times = 127 / largest;
    for (size_t i = 0; i < model_.width; ++i)
      to[i] = static_cast<int8_t>(query[i] * times + (query[i] < 0 ? -0.5f : 0.5f));
    return largest / 127;
  }

  const SignModel& model_;
  size_t room_, columns_;
  std::vector<float> relative_;
  std::vector<uint8_t> bytes_;
  std::vector<float> own_, lengths_;
  std::vector<Tables> rows_, centers_;
  std::vector<uint64_t> visits_;
  std::vector<size_t> counts_;
};

// --- the groups that a query visits ------------------------------------------------------------

void find_groups(const Kernels& kernels, const SignModel& model, Prepared& prepared, size_t q,
                 std::vector<uint64_t>& keys) {
  const size_t n = prepared.room();
  const Beside beside{prepared.of_centers(q), model.center_units, prepared.own(q), 0};
  keys.clear();
  const auto look = [&](size_t begin, size_t end, float bound) {
    scan(kernels, model.center_blocks, model.center_bits, begin, end, beside.tables.bytes,
         beside.bound_of_sums(bound), [&](size_t entry, unsigned sum, int alpha, int beta) {
           const float estimate = beside.estimate(sum, alpha, beta);
           if (estimate <= bound)
             keys.push_back(make_float_key(sortable(estimate), model.center_order[entry]));
         });
  };
  const auto cut = [&](size_t to) {
    if (to >= keys.size()) return kInfinite;
    std::nth_element(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(to), keys.end());
    keys.resize(to);
    return float_of(*std::max_element(keys.begin(), keys.end()));
  };
  // The first few, in random order as they are, say how near the n nearest are, with room for
  // chance; all are wanted where that was too little.
  const size_t few = std::max<size_t>(4 * kBlock, model.n_groups / 16 / kBlock * kBlock);
  if (few < model.n_groups) {
    look(0, few, kInfinite);
    look(few, model.n_groups, cut(2 * n * few / model.n_groups + 4));
  }
  if (keys.size() < n) {
    keys.clear();
    look(0, model.n_groups, kInfinite);
  }
  cut(n);
  std::iter_swap(keys.begin(), std::min_element(keys.begin(), keys.end()));
  std::copy(keys.begin(), keys.end(), prepared.visits(q));
  prepared.n_visits(q) = keys.size();
}

// Puts the groups that come next, those with the least estimates, in the order of their exact
// distances.
void order_groups(const SignModel& model, Prepared& prepared, size_t q, size_t begin, size_t end) {
  uint64_t* const keys = prepared.visits(q);
  const size_t count = prepared.n_visits(q);
  if (end < count) std::nth_element(keys + begin, keys + end, keys + count);
  const float* query = prepared.relative(q);
  for (size_t i = begin; i < end; ++i) {
    constexpr size_t kAhead = 4;
    if (i + kAhead < end) {
      const float* next = model.centers + position_of(keys[i + kAhead]) * model.width;
      for (size_t at = 0; at < model.width; at += 16) __builtin_prefetch(next + at);
    }
    const float* center = model.centers + position_of(keys[i]) * model.width;
    const double distance =
        model.metric == Metric::ip
            ? prepared.own(q) - 2 * sums<Metric::ip>(query, center, model.width).sum
            : sums<Metric::l2>(query, center, model.width).sum;
    keys[i] = make_float_key(sortable(static_cast<float>(distance)), position_of(keys[i]));
  }
  std::sort(keys + begin, keys + end);
}

// --- exact distances ---------------------------------------------------------------------------

// Distances of the vectors of a segment to one query after another.
class Exact {
 public:
  virtual ~Exact() = default;
  virtual void start(size_t query) = 0;
  virtual float distance(size_t row) const = 0;
  virtual void fetch(size_t row) const = 0;
};

template <Metric METRIC, class Query, class Value>
class ExactVectors final : public Exact {
 public:
  ExactVectors(const Query* queries, const void* vectors, size_t width)
      : measure_(queries, width, nullptr), vectors_(static_cast<const Value*>(vectors)),
        width_(width) {}
  void start(size_t query) override { measure_.start(query); }
  float distance(size_t row) const override {
    return measure_.distance(measure_.sums_of(vectors_ + row * width_));
  }
  void fetch(size_t row) const override {
    const char* at = reinterpret_cast<const char*>(vectors_ + row * width_);
    const char* end = reinterpret_cast<const char*>(vectors_ + (row + 1) * width_);
    for (; at < end; at += 64) __builtin_prefetch(at);
  }

 private:
  VectorMeasure<METRIC, Query, Value> measure_;
  const Value* vectors_;
  size_t width_;
};

template <class Query, class Value>
std::unique_ptr<Exact> exact_vectors(Metric metric, const Query* queries, const void* vectors,
                                     size_t width) {
  switch (metric) {
    case Metric::l2:
      return std::make_unique<ExactVectors<Metric::l2, Query, Value>>(queries, vectors, width);
    case Metric::cosine:
      return std::make_unique<ExactVectors<Metric::cosine, Query, Value>>(queries, vectors, width);
    default:
      return std::make_unique<ExactVectors<Metric::ip, Query, Value>>(queries, vectors, width);
  }
}

template <class Query>
std::unique_ptr<Exact> exact_of(Metric metric, const Query* queries, const SignSegment& segment,
                                size_t width) {
  if (segment.values == Values::none) return nullptr;
  if constexpr (std::is_same_v<Query, float>) {
    const void* vectors = segment.vectors;
    switch (segment.values) {
      case Values::float32: return exact_vectors<float, float>(metric, queries, vectors, width);
      case Values::float16: return exact_vectors<float, Half>(metric, queries, vectors, width);
      case Values::uint8: return exact_vectors<float, uint8_t>(metric, queries, vectors, width);
      default: return exact_vectors<float, int8_t>(metric, queries, vectors, width);
    }
  } else {
    const Values own = std::is_same_v<Query, uint8_t> ? Values::uint8 : Values::int8;
    if (segment.values != own)
      throw std::invalid_argument("no way to compare vectors of these types");
    return exact_vectors<Query, Query>(metric, queries, segment.vectors, width);
  }
}

// --- the rows in them --------------------------------------------------------------------------

struct Candidate {
  float estimate, least;  // less what it may be off
  uint32_t segment, row;
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
    for (size_t i = 0; i < settings.probes; ++i)
      limits_.push_back(
          static_cast<float>(std::log(settings.stop / static_cast<double>(i + 1)) / kHaste));
  }

  void find(Prepared& prepared, size_t q, const Ranking& ranking, SignEffort& effort) {
    for (const auto& exact : exact_)
      if (exact) exact->start(q);
    best_.clear();
    waiting_.clear();
    seen_.clear();
    bound_ = kInfinite;
    effort_ = {0, 0, 0};
    const uint64_t* visits = prepared.visits(q);
    size_t ordered = 0;  // so many groups
    for (size_t i = 0; i < std::min(prepared.n_visits(q), settings_.probes); ++i) {
      if (i == ordered) {
        ordered = std::min(ordered + std::max(kOrdered, ordered / 2), prepared.n_visits(q));
        order_groups(model_, prepared, q, i, ordered);
      }
      const float distance = float_of(visits[i]);
      if (distance - float_of(visits[0]) > limits_[i] * std::fabs(bound_)) break;
      if (i + 1 < ordered) fetch_group(position_of(visits[i + 1]));
      const float length =
          model_.metric == Metric::ip ? prepared.length(q) : std::sqrt(distance);
      const Beside beside{prepared.of_rows(q), model_.units, distance, settings_.spread * length};
      for (size_t s = 0; s < segments_.size(); ++s) visit_group(beside, s, position_of(visits[i]));
      ++effort_.groups;
      if (waiting_.size() >= kWaiting || bound_ == kInfinite) compare();
    }
    compare();
    write(q, ranking);
    effort = effort_;
  }

 private:
  void fetch_group(size_t group) const {
    for (const SignSegment& segment : segments_) {
      const size_t begin = static_cast<size_t>(segment.limits[group]) / kBlock;
      const size_t end = (static_cast<size_t>(segment.limits[group + 1]) + kBlock - 1) / kBlock;
      const size_t bytes = block_bytes(model_.bits);
      const uint8_t* const blocks = segment.blocks + begin * bytes;
      for (size_t at = 0; at < std::min(kFetched, (end - begin) * bytes); at += 64)
        __builtin_prefetch(blocks + at, 0, 2);
    }
  }

  void visit_group(const Beside& beside, size_t s, size_t group) {
    const SignSegment& segment = segments_[s];
    const size_t begin = static_cast<size_t>(segment.limits[group]);
    const size_t end = static_cast<size_t>(segment.limits[group + 1]);
    if (begin == end) return;
    effort_.entries += static_cast<int32_t>(end - begin);
    size_t from = begin;
    if (bound_ == kInfinite) {  // a bound from few entries
      from = std::min(end, (begin / kBlock + kFew) * kBlock);
      scan_entries(beside, s, begin, from);
      compare();
    }
    if (from < end) scan_entries(beside, s, from, end);
  }

  void scan_entries(const Beside& beside, size_t s, size_t begin, size_t end) {
    const SignSegment& segment = segments_[s];
    scan(kernels_, segment.blocks, model_.bits, begin, end, beside.tables.bytes,
         beside.bound_of_sums(bound_), [&](size_t entry, unsigned sum, int alpha, int beta) {
           const float estimate = beside.estimate(sum, alpha, beta);
           const float least = alpha == -32768 ? -kInfinite : estimate - beside.slack(beta);
           if (!(least < bound_)) return;
           const uint32_t row = segment.rows[entry];
           if (row >= segment.n_rows)
             throw std::runtime_error("a row number is beyond the last row");
           if (segment.allowed != nullptr && !segment.allowed[rank(segment, row)]) return;
           if (bound_ < kInfinite && exact_[s]) exact_[s]->fetch(row);
           waiting_.push_back({estimate, least, static_cast<uint32_t>(s), row});
         });
  }

  static size_t rank(const SignSegment& segment, uint32_t row) {
    if (segment.ranks == nullptr) return row;
    const uint32_t rank = segment.ranks[row];
    if (rank >= segment.n_rows) throw std::runtime_error("a rank is beyond the last row");
    return rank;
  }

  // Compares those that may still be among the k nearest, likely ones first.
  void compare() {
    const auto nearer = [](const Candidate& x, const Candidate& y) {
      return x.estimate != y.estimate ? x.estimate < y.estimate
             : x.segment != y.segment ? x.segment < y.segment : x.row < y.row;
    };
    auto first = waiting_.begin();
    if (bound_ == kInfinite && waiting_.size() > settings_.k) {  // a bound from the first k
      const auto kth = first + static_cast<ptrdiff_t>(settings_.k);
      std::nth_element(first, kth, waiting_.end(), nearer);
      for (auto at = first; at != kth; ++at)
        if (exact_[at->segment]) exact_[at->segment]->fetch(at->row);
      std::sort(first, kth, nearer);
      for (; first != kth; ++first) compare(*first);
      waiting_.erase(std::remove_if(first, waiting_.end(),
                                    [&](const Candidate& c) { return !(c.least < bound_); }),
                     waiting_.end());
      for (auto at = first; at != waiting_.end(); ++at)
        if (exact_[at->segment]) exact_[at->segment]->fetch(at->row);
    }
    std::sort(first, waiting_.end(), nearer);
    for (; first != waiting_.end(); ++first) compare(*first);
    waiting_.clear();
  }

  void compare(const Candidate& candidate) {
    if (!(candidate.least < bound_)) return;
    const SignSegment& segment = segments_[candidate.segment];
    if (has_twins_ && !seen_.add(uint64_t{candidate.segment} << 32 | candidate.row)) return;
    ++effort_.vectors;
    const Exact* exact = exact_[candidate.segment].get();
    const float distance =
        exact ? exact->distance(candidate.row) : from_estimate(candidate.estimate);
    if (best_.size() == settings_.k && distance > best_.front().distance) return;
    const Found found{distance, segment.first + static_cast<int64_t>(rank(segment, candidate.row)),
                      segment.first + candidate.row};
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
  std::vector<Found> best_;  // a heap, the farthest first
  Seen seen_;
  float bound_ = kInfinite;  // an estimate at this or above is not wanted
  SignEffort effort_{};
};

void check(const SignModel& model, const std::vector<SignSegment>& segments) {
  for (size_t i = 0; i < model.n_groups; ++i)
    if (model.center_order[i] >= model.n_groups)
      throw std::runtime_error("the order of centers goes beyond the last");
  for (const SignSegment& segment : segments) {
    int64_t before = 0;
    for (size_t i = 0; i <= model.n_groups; ++i) {
      if (segment.limits[i] < before) throw std::runtime_error("the limits of groups do not rise");
      before = segment.limits[i];
    }
    if (static_cast<uint64_t>(before) > segment.n_entries)
      throw std::runtime_error("the limits of groups go beyond the last entry");
  }
}

}  // namespace

template <class Query>
void search_signs(const Kernels& kernels, const SignModel& model,
                  const std::vector<SignSegment>& segments, const Query* queries, size_t n_queries,
                  const SignSettings& settings, Control& control, const Ranking& ranking,
                  SignEffort* efforts) {
  check(model, segments);
  for (size_t first = 0; first < n_queries; first += kPrepared) {
    const size_t count = std::min(kPrepared, n_queries - first);
    const Query* here = queries + first * model.width;
    const Ranking to{ranking.distances + first * ranking.k, ranking.positions + first * ranking.k,
                     ranking.k};
    Prepared prepared(model, settings, count);
    const size_t n_tasks = (count + kQueries - 1) / kQueries;
    const double work = static_cast<double>(count) * 1e5;  // some 30 microseconds each
    const size_t n_workers = control.worth_starting(work);
    std::vector<std::vector<uint64_t>> keys(n_workers);
    control.run(n_workers, n_tasks, [&](size_t task, size_t worker) {
      const size_t begin = task * kQueries, n = std::min(kQueries, count - begin);
      prepared.prepare(here, begin, n);
      for (size_t q = begin; q < begin + n; ++q) {
        control.poll(worker);
        find_groups(kernels, model, prepared, q, keys[worker]);
      }
    });
    // By their first group: queries that follow each other often find entries in the cache.
    std::vector<uint64_t> order(count);
    for (size_t q = 0; q < count; ++q) {
      order[q] = uint64_t{position_of(prepared.visits(q)[0])} << 32 | q;
    }
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
