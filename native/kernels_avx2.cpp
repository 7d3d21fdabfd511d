// AVX2, and the popcount instruction for one query: on these machines nothing is faster.
#include "lanes_avx2.hpp"

namespace densehash {

const Kernels& avx2_kernels() {
  static constexpr Kernels kernels =
      with_tables("avx2", row<uint8_t>, row<uint16_t>, count_row<row<uint8_t>>);
  return kernels;
}

}  // namespace densehash
