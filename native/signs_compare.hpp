// Candidates of a search by signs, and their way to the k nearest.
#pragma once

#include <vector>

#include "signs_answer.hpp"
#include "signs_exact.hpp"

namespace densehash {

// What one thread needs for one query after another.
class Comparer {
 public:
  Comparer(const SignModel& model, const std::vector<SignSegment>& segments, size_t k,
           Exacts exacts);

  // Whether rows have more than one entry, so that one may be found twice.
  bool has_twins() const { return has_twins_; }

  // Reads the rows of new candidates, and leaves out those that may not be found. Later than they
  // were scanned: by then, what is read here has come to the cache.
  void name_rows(Answer& answer) const;

  // Draws a bound from estimates, before anything is compared.
  void tighten(Answer& answer);

  // Compares those that may still be among the k nearest, likely ones first.
  void compare(Answer& answer);

 private:
  void compare(Answer& answer, const Candidate& candidate);
  float from_estimate(float estimate) const;
  float to_estimate(float distance) const;

  const SignModel& model_;
  const std::vector<SignSegment>& segments_;
  size_t k_;
  Exacts exacts_;
  bool has_twins_ = false;
  std::vector<float> estimates_;
  std::vector<uint64_t> keys_;
};

}  // namespace densehash
