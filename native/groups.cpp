#include "groups.hpp"

#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>

#include "least.hpp"
#include "select.hpp"

namespace densehash {
namespace {

// Queries that a thread takes at a time.
constexpr size_t kQueries = 16;

}  // namespace

// --- the groups that a query visits ------------------------------------------------------------

void nearest_groups(const float* scores, size_t n_queries, size_t n_groups, size_t p,
                    Control& control, int32_t* groups) {
  if (p == 0) return;
  const double bytes =
      static_cast<double>(n_queries) * static_cast<double>(n_groups * sizeof *scores);
  const size_t n_tasks = (n_queries + kQueries - 1) / kQueries;
  control.run(control.worth_starting(bytes), n_tasks, [&](size_t task, size_t worker) {
    Least least(n_groups, p);
    const size_t end = std::min((task + 1) * kQueries, n_queries);
    for (size_t q = task * kQueries; q < end; ++q) {
      control.poll(worker);
      const float* of_query = scores + q * n_groups;
      const size_t found = least.find(
          n_groups, [=](size_t i) { return -of_query[i]; }, [](float kth) { return kth; });
      uint64_t* const keys = least.keys();
      if (found > 2 * p) std::nth_element(keys, keys + p, keys + found);
      std::sort(keys, keys + (found > 2 * p ? p : found));
      for (size_t i = 0; i < p; ++i)
        groups[q * p + i] = static_cast<int32_t>(RowKey::position(keys[i]));
    }
  });
}

// --- the codes in them -------------------------------------------------------------------------

namespace {

// Finds the nearest codes of one query after another. Candidates are kept in a list, which is cut
// when it is full, and at the end. Ties are broken by rank. Ranks are far apart in memory, so they
// are read only for the candidates among which a cut has to choose. NearestCodes has no ranks, and
// takes 6% (k = 100) to 20% (k = 1000) more instructions, because it takes candidates one by one.
class GroupSearch {
 public:
  GroupSearch(const Kernels& kernels, const GroupedCodes& groups, size_t k)
      : kernels_(kernels), groups_(groups), codes_(groups.codes), bits_(codes_.bits()),
        k_(std::clamp<size_t>(k, 1, std::max<size_t>(codes_.count, 1))), bound_(k_, bits_),
        found_(2 * k_ + kCodes), ties_(found_.size() + 1),
        tile_(2 * (kCodes + kRun) / sizeof(CacheLine)), runs_(kCodes / kRun) {}

  void find(const uint8_t* query, const int32_t* probes, size_t p, Control& control,
            size_t worker) {
    query_ = query;
    size_ = 0;
    bound_.clear();
    list_stretches(probes, p);
    for (size_t i = visit_first(); i < stretches_.size(); ++i) {
      if (i % 64 == 63) control.poll(worker);
      visit(stretches_[i]);
    }
    cut();
  }

  // Writes the codes that were found, then -1 up to k.
  void write(bool ordered, size_t k, int32_t* distances, int64_t* positions) {
    if (ordered) sort();
    for (size_t i = 0; i < size_; ++i) {
      distances[i] = static_cast<int32_t>(HammingKey::first(found_[i]));
      positions[i] = static_cast<int64_t>(HammingKey::position(found_[i]));
    }
    std::fill(distances + size_, distances + k, -1);
    std::fill(positions + size_, positions + k, int64_t{-1});
  }

 private:
  // Codes that are compared at a time.
  static constexpr size_t kCodes = 4096;
  static constexpr size_t kNone8 = 255;  // in a byte: this distance or more
  typedef uint8_t Bytes16 __attribute__((vector_size(16)));

  // Consecutive codes of a group.
  struct Stretch {
    size_t first, count;

    size_t n_runs() const { return (count + kRun - 1) / kRun; }
  };

  uint8_t* tile8() { return reinterpret_cast<uint8_t*>(tile_.data()); }
  uint16_t* tile16() { return tile_[0].words; }

  void list_stretches(const int32_t* probes, size_t p) {
    stretches_.clear();
    for (size_t i = 0; i < p; ++i) {
      const auto [begin, end] = groups_.probed(probes + i);
      for (size_t at = begin; at < end; at += kCodes)
        stretches_.push_back({at, std::min(kCodes, end - at)});
    }
  }

  // Without a bound, every code would be a candidate. So the first stretches are compared, and
  // their k-th distance is found, before any code is taken. Returns how many stretches were
  // visited.
  size_t visit_first() {
    if (bits_ > 256 || groups_.allowed != nullptr) return 0;
    size_t n = 0, count = 0;
    while (n < stretches_.size() && count + stretches_[n].count <= kCodes)
      count += stretches_[n++].count;
    if (count < k_) return 0;
    // Calls what(stretch, its distances).
    const auto for_stretches = [&](auto&& what) {
      uint8_t* distances = tile8();
      for (size_t i = 0; i < n; distances += stretches_[i++].count) what(stretches_[i], distances);
    };
    for_stretches(
        [&](const Stretch& stretch, uint8_t* distances) { compare8(stretch, distances); });
    std::fill_n(tile8() + count, kRun, uint8_t{kNone8});
    if (bits_ == 256)
      for_stretches([&](const Stretch& stretch, uint8_t* distances) {
        for (size_t r = find8(stretch, distances, 1); r-- > 0;)
          for_entries(runs_[r], stretch, [&](size_t e) {
            if (!is_equal(stretch.first + e)) distances[e] = kNone8;
          });
      });
    const size_t kth = kth_distance((count + kRun - 1) / kRun);
    if (kth >= kNone8) return 0;
    bound_.set(kth + 1);
    for_stretches([&](const Stretch& stretch, uint8_t* distances) {
      take(stretch, distances, find8(stretch, distances, bound_.value()));
    });
    return n;
  }

  void visit(const Stretch& stretch) {
    if (bits_ <= 256 && bound_.value() <= kNone8) {
      compare8(stretch, tile8());
      take(stretch, tile8(), find8(stretch, tile8(), bound_.value()));
    } else {
      kernels_.row16(query_, codes_.row(stretch.first), codes_.bytes, rounded(stretch), tile16());
      uint16_t bounds[kRun];
      std::fill_n(bounds, kRun, static_cast<uint16_t>(bound_.value()));
      take(stretch, tile16(), kernels_.below16(tile16(), stretch.n_runs(), bounds, runs_.data()));
    }
  }

  // The count rounded up to whole vectors, if there are that many codes; the excess is not used.
  size_t rounded(const Stretch& stretch) const {
    return std::min((stretch.count + 15) / 16 * 16, codes_.count - stretch.first);
  }

  // With 256 bits, the distance 256 becomes 0: is_equal must check zeros.
  void compare8(const Stretch& stretch, uint8_t* distances) {
    kernels_.row8(query_, codes_.row(stretch.first), codes_.bytes, rounded(stretch), distances);
  }

  // Whether a code at distance 0 or 256 is at 0.
  bool is_equal(size_t position) const { return codes_.row(position)[0] == query_[0]; }

  // Finds the runs that have distances below a bound.
  size_t find8(const Stretch& stretch, const uint8_t* distances, size_t bound) {
    uint8_t bounds[kRun];
    std::fill_n(bounds, kRun, static_cast<uint8_t>(bound));
    return kernels_.below8(distances, stretch.n_runs(), bounds, runs_.data());
  }

  // The k-th distance in a tile, by bisection: counting bytes is cheap.
  size_t kth_distance(size_t n_runs) {
    size_t low = 0, high = kNone8;
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (count_within(n_runs, static_cast<uint8_t>(middle)) >= k_)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  size_t count_within(size_t n_runs, uint8_t bound) {
    static_assert(kCodes / kRun < 255, "counts fit a byte");
    const Bytes16 bounds = Bytes16{} + bound;
    Bytes16 counts[kRun / 16] = {};
    const uint8_t* at = tile8();
    for (size_t r = 0; r < n_runs; ++r)
      for (Bytes16& count : counts) {
        Bytes16 distances;
        std::memcpy(&distances, at, sizeof distances);
        count -= reinterpret_cast<Bytes16>(distances <= bounds);  // all ones are -1
        at += sizeof distances;
      }
    size_t sum = 0;
    for (const Bytes16& count : counts)
      for (size_t i = 0; i < sizeof count; ++i) sum += count[i];
    return sum;
  }

  // Calls what(entry) for the entries of a run that belong to the stretch.
  template <class What>
  static void for_entries(const Run& run, const Stretch& stretch, What&& what) {
    const size_t first = run.index * kRun;
    uint64_t mask = run.mask;
    if (first + kRun > stretch.count) mask &= ~uint64_t{0} >> (first + kRun - stretch.count);
    for (; mask != 0; mask &= mask - 1) what(first + static_cast<size_t>(__builtin_ctzll(mask)));
  }

  template <class D>
  void take(const Stretch& stretch, const D* distances, size_t n_runs) {
    if (size_ + stretch.count > found_.size()) cut();
    uint32_t* const counts = bound_.counts();
    const uint32_t n_zeros = counts[0];
    uint64_t* end = found_.data() + size_;
    for (size_t r = 0; r < n_runs; ++r)
      for_entries(runs_[r], stretch, [&](size_t e) {
        *end++ = HammingKey::make(distances[e], stretch.first + e);
        ++counts[distances[e]];
      });
    size_t n = static_cast<size_t>(end - found_.data()) - size_;
    const bool are_doubtful = sizeof(D) == 1 && bits_ == 256 && counts[0] != n_zeros;
    if (are_doubtful || groups_.allowed != nullptr) n = filter(n, are_doubtful);
    size_ += n;
    bound_.add_counted(n);
  }

  // Of the last n keys, keeps those that are allowed and, if zeros are doubtful, are not at 256;
  // returns how many.
  size_t filter(size_t n, bool zeros_are_doubtful) {
    uint64_t* const begin = found_.data() + size_;
    uint64_t* kept = begin;
    for (uint64_t* at = begin; at < begin + n; ++at) {
      const size_t position = HammingKey::position(*at);
      const bool is_256 = zeros_are_doubtful && HammingKey::first(*at) == 0 && !is_equal(position);
      if (is_256 || (groups_.allowed != nullptr && !groups_.allowed[groups_.rank(position)]))
        --bound_.counts()[HammingKey::first(*at)];
      else
        *kept++ = *at;
    }
    return static_cast<size_t>(kept - begin);
  }

  // Keeps all codes nearer than the last distance below the bound, and of those at this distance
  // the first by rank, up to k in total.
  void cut() {
    const size_t last = bound_.value() - 1;
    uint64_t* const found = found_.data();
    uint64_t* const ties = ties_.data();
    size_t n = 0, n_ties = 0;
    for (size_t i = 0; i < size_; ++i) {  // no branch, because it would be unpredictable
      const uint64_t key = found[i];
      found[n] = key;
      n += HammingKey::first(key) < last;
      ties[n_ties] = key;
      n_ties += HammingKey::first(key) == last;
    }
    const size_t wanted = std::min(n_ties, k_ - n);
    if (wanted < n_ties) {
      for (size_t i = 0; i < n_ties; ++i) {
        const size_t position = HammingKey::position(ties[i]);
        ties[i] = RowKey::make(groups_.rank(position), position);
      }
      std::nth_element(ties, ties + wanted, ties + n_ties);
      for (size_t i = 0; i < wanted; ++i)
        ties[i] = HammingKey::make(last, RowKey::position(ties[i]));
    }
    std::copy_n(ties, wanted, found + n);
    size_ = n + wanted;
    bound_.keep_last(wanted);
  }

  void sort() {
    uint64_t* const end = found_.data() + size_;
    std::sort(found_.data(), end);
    if (groups_.ranks == nullptr) return;
    order_ties<HammingKey>(found_.data(), end,
                           [&](size_t position) { return groups_.rank(position); });
  }

  const Kernels& kernels_;
  const GroupedCodes& groups_;
  Codes codes_;
  size_t bits_;
  size_t k_;
  const uint8_t* query_ = nullptr;
  CountedBound<Stream::any> bound_;
  size_t size_ = 0;  // of the list
  std::vector<Stretch> stretches_;
  std::vector<uint64_t> found_, ties_;
  std::vector<CacheLine> tile_;
  std::vector<Run> runs_;
};

// Finds the rows with the largest estimated products of one query after another. Rows that may be
// among them are kept in a list, which is cut when it is full, and in the end.
class ProductSearch {
 public:
  ProductSearch(const Kernels& kernels, const GroupedCodes& groups, const Products& products,
                size_t k)
      : kernels_(kernels), groups_(groups), products_(products), codes_(groups.codes),
        k_(std::clamp<size_t>(k, 1, std::max<size_t>(codes_.count, 1))), found_(2 * k_ + kCodes),
        bits_(kCodes + kTogether), near_(kCodes) {}

  void find(size_t query, const uint8_t* code, const int32_t* probes, size_t p, Control& control,
            size_t worker) {
    code_ = code;
    factor_ = products_.factors[query];
    size_ = 0;
    last_ = UINT64_MAX;
    bound_ = kInfinite;
    for (size_t i = 0; i < p; ++i) {
      const auto [begin, end] = groups_.probed(probes + i);
      for (size_t at = begin; at < end; at += kCodes) {
        control.poll(worker);
        visit(at, std::min(kCodes, end - at));
      }
    }
    if (size_ > k_) cut();
  }

  // What was found, in k places.
  void write(bool ordered, size_t k, float* distances, int64_t* positions) {
    if (ordered) std::sort(found_.begin(), found_.begin() + static_cast<ptrdiff_t>(size_));
    for (size_t i = 0; i < size_; ++i) {
      distances[i] = float_of(found_[i].key);
      positions[i] = found_[i].position;
    }
    std::fill(distances + size_, distances + k, kInfinite);
    std::fill(positions + size_, positions + k, int64_t{-1});
  }

 private:
  // Codes that are compared at a time, and those of which most are too far away.
  static constexpr size_t kCodes = 4096, kTogether = 16;

  // A row by its distance and rank, which no other row has.
  struct Near {
    uint64_t key;
    uint32_t position;

    bool operator<(const Near& other) const { return key < other.key; }
  };

  void visit(size_t first, size_t count) {
    const size_t rounded = std::min((count + 15) / 16 * 16, codes_.count - first);
    kernels_.row16(code_, codes_.row(first), codes_.bytes, rounded, bits_.data());
    // In variables of its own, which the compiler knows that the loop does not change.
    const float zero = products_.zero, factor = factor_;
    const float* const lengths = products_.lengths + first;
    const uint16_t* const bits = bits_.data();
    float* const near = near_.data();
    for (size_t i = 0; i < count; ++i)
      near[i] = lengths[i] * ((static_cast<float>(bits[i]) - zero) * factor);
    if (size_ + count > found_.size()) cut();
    const float bound = bound_;
    for (size_t begin = 0; begin < count; begin += kTogether) {
      const size_t end = std::min(begin + kTogether, count);
      if (end - begin == kTogether) {  // most have none
        int32_t is_near = 0;
        for (size_t i = begin; i < begin + kTogether; ++i) is_near |= near[i] > bound ? 0 : -1;
        if (is_near == 0) continue;
      }
      size_t which[kTogether], n = 0;
      for (size_t i = begin; i < end; ++i) {  // without a branch, since it could not be foretold
        which[n] = i;
        n += !(near[i] > bound);  // what is no number comes last
      }
      for (size_t i = 0; i < n; ++i) take(near[which[i]], first + which[i]);
    }
  }

  void take(float near, size_t position) {
    const size_t rank = groups_.rank(position);
    const uint64_t key = make_float_key(sortable(near), rank);
    if (key > last_ || (groups_.allowed != nullptr && !groups_.allowed[rank])) return;
    found_[size_++] = {key, static_cast<uint32_t>(position)};
  }

  // Keeps the first k.
  void cut() {
    if (size_ <= k_) return;
    const auto last = found_.begin() + static_cast<ptrdiff_t>(k_ - 1);
    std::nth_element(found_.begin(), last, found_.begin() + static_cast<ptrdiff_t>(size_));
    last_ = last->key;
    bound_ = float_of(last_);
    size_ = k_;
  }

  static constexpr float kInfinite = std::numeric_limits<float>::infinity();

  const Kernels& kernels_;
  const GroupedCodes& groups_;
  const Products& products_;
  Codes codes_;
  size_t k_;
  const uint8_t* code_ = nullptr;
  float factor_ = 0;
  uint64_t last_ = UINT64_MAX;  // the k-th when the list was last cut
  float bound_ = kInfinite;     // its distance
  size_t size_ = 0;             // of the list
  std::vector<Near> found_;
  std::vector<uint16_t> bits_;  // that differ from the query, of some codes
  std::vector<float> near_;     // their distances
};

// Calls answer(search, query) for all queries, with a search of each thread that make() returns.
template <class Make, class Answer>
void for_queries(Codes queries, const GroupedCodes& groups, const int32_t* probes, size_t p,
                 Control& control, Make&& make, Answer&& answer) {
  for (size_t group = 0; group < groups.count; ++group) groups.range(group);
  // Ordered by their first group, so that queries often find the codes of the last query in the
  // cache.
  std::vector<uint64_t> order(queries.count);
  for (size_t q = 0; q < queries.count; ++q)
    order[q] = RowKey::make(p > 0 ? static_cast<uint32_t>(probes[q * p]) : 0, q);
  std::sort(order.begin(), order.end());
  const double bytes = static_cast<double>(queries.count * p) *
                       static_cast<double>(groups.codes.count * queries.bytes) /
                       static_cast<double>(std::max<size_t>(groups.count, 1));
  const size_t n_workers = control.worth_starting(bytes);
  std::vector<decltype(make())> workers(n_workers);
  const size_t n_tasks = (queries.count + kQueries - 1) / kQueries;
  control.run(n_workers, n_tasks, [&](size_t task, size_t worker) {
    if (!workers[worker]) workers[worker] = make();
    const size_t end = std::min((task + 1) * kQueries, queries.count);
    for (size_t i = task * kQueries; i < end; ++i) {
      control.poll(worker);
      answer(*workers[worker], RowKey::position(order[i]), worker);
    }
  });
}

}  // namespace

void top_k_in_groups(const Kernels& kernels, Codes queries, const GroupedCodes& groups,
                     const int32_t* probes, size_t p, size_t k, bool ordered, Control& control,
                     int32_t* distances, int64_t* positions) {
  for_queries(
      queries, groups, probes, p, control,
      [&] { return std::make_unique<GroupSearch>(kernels, groups, k); },
      [&](GroupSearch& search, size_t q, size_t worker) {
        search.find(queries.row(q), probes + q * p, p, control, worker);
        search.write(ordered, k, distances + q * k, positions + q * k);
      });
}

void top_products_in_groups(const Kernels& kernels, Codes queries, const GroupedCodes& groups,
                            const Products& products, const int32_t* probes, size_t p, size_t k,
                            bool ordered, Control& control, float* distances, int64_t* positions) {
  for_queries(
      queries, groups, probes, p, control,
      [&] { return std::make_unique<ProductSearch>(kernels, groups, products, k); },
      [&](ProductSearch& search, size_t q, size_t worker) {
        search.find(q, queries.row(q), probes + q * p, p, control, worker);
        search.write(ordered, k, distances + q * k, positions + q * k);
      });
}

}  // namespace densehash
