// The portable path, for any 64-bit machine; the other sets are tested against it.
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

int product(int16_t x, int16_t y) { return (x * y + 0x4000) >> 15; }
int saturated(int x) { return x < -32768 ? -32768 : x > 32767 ? 32767 : x; }

size_t signs(const uint8_t* blocks, size_t bits, size_t count, const uint8_t* lookups,
             SignBound bound, uint16_t* sums, SignRun* runs) {
  size_t found = 0;
  for (size_t block = 0; block < count; ++block, blocks += block_bytes(bits)) {
    uint16_t* of_block = sums + found * kBlock;
    for (size_t e = 0; e < kBlock; ++e) of_block[e] = 0;
    for (size_t place = 0; place < bits / 4; ++place) {
      const uint8_t* halves = blocks + place * 16;
      const uint8_t* lookup = lookups + place * 16;
      for (size_t e = 0; e < 16; ++e) {
        of_block[e] = static_cast<uint16_t>(of_block[e] + lookup[halves[e] & 15]);
        of_block[e + 16] = static_cast<uint16_t>(of_block[e + 16] + lookup[halves[e] >> 4]);
      }
    }
    BlockFactors factors;
    std::memcpy(&factors, blocks + bits * kBlock / 8, sizeof factors);
    uint32_t mask = 0;
    for (size_t e = 0; e < kBlock; ++e) {
      const int limit = saturated(saturated(product(factors.alphas[e], bound.times_alpha) +
                                            product(factors.betas[e], bound.times_beta)) +
                                  bound.offset);
      mask |= uint32_t{of_block[e] > limit} << e;
    }
    runs[found] = {static_cast<uint32_t>(block), mask};
    found += mask != 0;
  }
  return found;
}

void dots(const int8_t* vectors, size_t n_vectors, const int8_t* matrix, size_t width,
          size_t count, int32_t* sums) {
  for (size_t row = 0; row < count; ++row, matrix += width) {
    for (size_t v = 0; v < n_vectors; ++v) {
      const int8_t* const vector = vectors + v * width;
      int32_t sum = 0;
      for (size_t i = 0; i < width; ++i) sum += vector[i] * matrix[i];
      sums[v * count + row] = sum;
    }
  }
}

}  // namespace

void use_scalar(Kernels& kernels) {
  kernels.row8 = row<uint8_t>;
  kernels.row16 = row<uint16_t>;
  kernels.count8 = count_row<row<uint8_t>>;
  kernels.gather = gather;
  kernels.below8 = below<uint8_t>;
  kernels.below16 = below<uint16_t>;
  kernels.signs = signs_of_each<signs>;
  kernels.dots = dots;
}

}  // namespace densehash
