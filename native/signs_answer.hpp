// The neighbours of a query that are known so far.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "signs.hpp"

namespace densehash {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

// An entry that may be one of the nearest.
struct Candidate {
  float estimate, least;  // the estimate, and the estimate minus its largest error
  uint32_t segment, entry;
  uint32_t row;  // at first its entry, from which its number is read later
};

struct Found {
  bool operator<(const Found& other) const {
    return distance != other.distance ? distance < other.distance : order < other.order;
  }
  float distance;
  int64_t order, position;
};

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
  // Call it after they are in order.
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

// The rows that were compared.
class Seen {
 public:
  void clear() {
    rows_.assign(kFewest, kNone);
    shift_ = 64 - __builtin_ctzll(kFewest);
    count_ = 0;
  }
  // Adds a row, and returns whether it is new.
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

// The neighbours of a query that are known so far.
struct Answer {
  void clear() {
    waiting.clear();
    n_named = 0;
    best.clear();
    bound = kInfinite;
    effort = {0, 0, 0};
  }
  // Continues the answer of the first share in another share.
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
  // Puts the k best in order, each once.
  void order(size_t k) {
    std::sort(best.begin(), best.end());
    if (best.size() <= k) return;  // there is only one share
    seen.clear();
    best.erase(std::remove_if(best.begin(), best.end(),
                              [&](const Found& found) { return !seen.add(found.position); }),
               best.end());
    if (best.size() > k) best.resize(k);
  }

  std::vector<Candidate> waiting;
  size_t n_named = 0;  // how many of these have known rows
  Best best;
  Seen seen;
  float bound = kInfinite;  // an estimate at this or above is not wanted
  SignEffort effort{};
  size_t query = 0;
  size_t of = 0, share = 0;  // the number of the first share's answer, and which share this is
};

}  // namespace densehash
