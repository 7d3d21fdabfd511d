// The portable path: any 64-bit machine, and the yardstick of the others.
#include "rows.hpp"

namespace densehash {
namespace {

template <class D>
size_t below(const D* tile, size_t n_runs, const D* bounds, Run* runs) {
  size_t found = 0;
  for (size_t r = 0; r < n_runs; ++r) {
    const D* entries = tile + r * kRun;
    bool any = false;
    for (size_t e = 0; e < kRun; ++e) any |= entries[e] < bounds[e];
    if (!any) continue;
    uint64_t mask = 0;
    for (size_t e = 0; e < kRun; ++e) mask |= uint64_t{entries[e] < bounds[e]} << e;
    runs[found++] = {static_cast<uint32_t>(r), mask};
  }
  return found;
}

}  // namespace

const Kernels& scalar_kernels() {
  static constexpr Kernels kernels = {"scalar",
                                      row<uint8_t>,
                                      row<uint16_t>,
                                      count_row<row<uint8_t>>,
                                      gather,
                                      below<uint8_t>,
                                      below<uint16_t>,
                                      {},
                                      {},
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr};
  return kernels;
}

}  // namespace densehash
