#include "signs_compare.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "keys.hpp"

namespace densehash {
namespace {

// Rows that are fetched ahead.
constexpr size_t kAhead = 5;

}  // namespace

Comparer::Comparer(const SignModel& model, const std::vector<SignSegment>& segments, size_t k,
                   Exacts exacts)
    : model_(model), segments_(segments), k_(k), exacts_(std::move(exacts)) {
  for (const SignSegment& segment : segments) has_twins_ |= segment.n_entries > segment.n_rows;
}

void Comparer::name_rows(Answer& answer) const {
  std::vector<Candidate>& waiting = answer.waiting;
  size_t kept = answer.n_named;
  for (size_t j = kept; j < waiting.size(); ++j) {
    const SignSegment& segment = segments_[waiting[j].segment];
    waiting[kept] = waiting[j];
    const size_t row = segment.row(waiting[j].row);
    waiting[kept].row = static_cast<uint32_t>(row);
    kept += segment.wanted != nullptr || segment.allowed == nullptr ||
            segment.allowed[segment.rank(row)];
  }
  waiting.resize(kept);
  answer.n_named = kept;
}

// The bound is the k-th best or, if rows may come twice, the 2k-th best after the first group.
void Comparer::tighten(Answer& answer) {
  const bool is_twice = has_twins_ && (answer.effort.groups > 1 || model_.n_groups == 1);
  const size_t n = is_twice ? 2 * k_ : k_;
  std::vector<Candidate>& waiting = answer.waiting;
  if (waiting.size() < n) return;
  estimates_.clear();
  for (const Candidate& c : waiting) estimates_.push_back(c.estimate);
  const auto last = estimates_.begin() + static_cast<ptrdiff_t>(n - 1);
  std::nth_element(estimates_.begin(), last, estimates_.end());
  const float bound = std::nextafter(*last, kInfinite);  // the last itself stays wanted
  answer.bound = std::min(answer.bound, bound);
  waiting.erase(std::remove_if(waiting.begin(), waiting.end(),
                               [&](const Candidate& c) { return !(c.least < answer.bound); }),
                waiting.end());
  answer.n_named = waiting.size();
}

// Estimates are squared distances; for cosine, of rows of length 1; for ip, twice the distance.
float Comparer::from_estimate(float estimate) const {
  if (model_.metric == Metric::l2) return std::sqrt(std::max(estimate, 0.0f));
  return model_.metric == Metric::ip ? estimate / 2 : std::max(estimate / 2, 0.0f);
}
float Comparer::to_estimate(float distance) const {
  return model_.metric == Metric::l2 ? distance * distance : 2 * distance;
}

ALWAYS_INLINE void Comparer::compare(Answer& answer, const Candidate& candidate) {
  const size_t row = candidate.row;
  const SignSegment& segment = segments_[candidate.segment];
  Best& best = answer.best;
  const int64_t position = segment.first + static_cast<int64_t>(row);
  if (has_twins_ && !answer.seen.add(RowKey::make(candidate.segment, row))) return;
  ++answer.effort.vectors;
  const Exact* exact = exacts_[candidate.segment].get();
  const float distance =
      exact ? exact->distance(row, candidate.entry) : from_estimate(candidate.estimate);
  if (best.size() == k_ && distance > best.front().distance) return;
  best.keep({distance, segment.first + static_cast<int64_t>(segment.rank(row)), position}, k_);
  if (best.size() == k_) answer.bound = to_estimate(best.front().distance);
}

void Comparer::compare(Answer& answer) {
  const std::vector<Candidate>& waiting = answer.waiting;
  keys_.clear();
  for (size_t i = 0; i < waiting.size(); ++i)
    if (waiting[i].least < answer.bound)
      keys_.push_back(make_float_key(sortable(waiting[i].estimate), i));
  std::sort(keys_.begin(), keys_.end());
  for (const auto& exact : exacts_)
    if (exact) exact->start(answer.query);
  size_t fetched = 0;
  for (size_t i = 0; i < keys_.size(); ++i) {
    for (; fetched < std::min(i + kAhead, keys_.size()); ++fetched) {
      const Candidate& next = waiting[RowKey::position(keys_[fetched])];
      if (answer.best.size() == k_ && !(next.least < answer.bound)) continue;
      if (exacts_[next.segment]) exacts_[next.segment]->fetch(next.row);
      const uint32_t* const ranks = segments_[next.segment].ranks;
      if (ranks != nullptr) __builtin_prefetch(ranks + next.row);
    }
    const Candidate& candidate = waiting[RowKey::position(keys_[i])];
    if (answer.best.size() < k_ || candidate.least < answer.bound) compare(answer, candidate);
  }
  answer.waiting.clear();
  answer.n_named = 0;
}

}  // namespace densehash
