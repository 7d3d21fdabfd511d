#include "groups.hpp"

#include <memory>
#include <stdexcept>

#include "nearest.hpp"

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
        groups[q * p + i] = static_cast<int32_t>(position_of(keys[i]));
    }
  });
}

// --- the codes in them -------------------------------------------------------------------------

void top_k_in_groups(const Kernels& kernels, Codes queries, const Groups& groups,
                     const int32_t* probes, size_t p, size_t k, bool ordered, Control& control,
                     int32_t* distances, int64_t* positions) {
  for (size_t group = 0; group < groups.count; ++group) groups.range(group);
  // By their first group: queries that follow each other often find codes in the cache.
  std::vector<uint64_t> order(queries.count);
  for (size_t q = 0; q < queries.count; ++q)
    order[q] = make_pair(p > 0 ? static_cast<uint32_t>(probes[q * p]) : 0, q);
  std::sort(order.begin(), order.end());
  const double bytes = static_cast<double>(queries.count * p) *
                       static_cast<double>(groups.codes.count * queries.bytes) /
                       static_cast<double>(std::max<size_t>(groups.count, 1));
  const size_t n_workers = control.worth_starting(bytes);
  std::vector<std::unique_ptr<Nearest>> workers(n_workers);
  const size_t n_tasks = (queries.count + kQueries - 1) / kQueries;
  control.run(n_workers, n_tasks, [&](size_t task, size_t worker) {
    if (!workers[worker]) workers[worker] = std::make_unique<Nearest>(kernels, groups, k);
    const size_t end = std::min((task + 1) * kQueries, queries.count);
    for (size_t i = task * kQueries; i < end; ++i) {
      control.poll(worker);
      const size_t q = position_of(order[i]);
      workers[worker]->find(queries.row(q), probes + q * p, p, control, worker);
      workers[worker]->write(ordered, k, distances + q * k, positions + q * k);
    }
  });
}

}  // namespace densehash
