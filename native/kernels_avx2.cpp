// AVX2, and the popcount instruction for one query: on these machines nothing is faster.
#include "lanes_avx2.hpp"

namespace densehash {

const Kernels& avx2_kernels() {
  static constexpr Kernels kernels = {"avx2",
                                      row<uint8_t>,
                                      row<uint16_t>,
                                      count_row<row<uint8_t>>,
                                      gather,
                                      below<Avx2, uint8_t>,
                                      below<Avx2, uint16_t>,
                                      kAvx2Cut,
                                      kAvx2Cut,
                                      expand<Avx2>,
                                      lookup<Avx2, uint8_t>,
                                      lookup<Avx2, uint16_t>,
                                      find<Avx2>};
  return kernels;
}

}  // namespace densehash
