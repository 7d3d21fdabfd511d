// From the candidates of a search by signs to the k nearest rows.
#pragma once

#include <vector>

#include "signs_answer.hpp"
#include "signs_exact.hpp"

namespace densehash {

// The state of one thread, for one query after another.
class Comparer {
 public:
  Comparer(const SignModel& model, const std::vector<SignSegment>& segments, size_t k,
           Exacts exacts);

  // Whether rows have more than one entry, so that a row may be found twice.
  bool has_twins() const { return has_twins_; }

  // Reads the rows of new candidates, and removes those that may not be found. Called some time
  // after the scan, when what it reads has been fetched into the cache.
  void name_rows(Answer& answer) const;

  // Lowers the bound by the estimates, before any vectors are compared.
  void tighten(Answer& answer);

  // Compares the candidates that may still be among the k nearest, the most likely first.
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
