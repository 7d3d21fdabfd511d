#include <cstring>

#include "kernels.hpp"

namespace densehash {
namespace {

struct Choice {
  const Kernels* kernels[4] = {};
  const char* names[5] = {};
  size_t count = 0;

  void add(const Kernels& kernels_of_set) {
    kernels[count] = &kernels_of_set;
    names[count++] = kernels_of_set.name;
  }

  Choice() {
    add(scalar_kernels());
#if defined(__aarch64__)
    add(neon_kernels());
#elif defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") &&
        __builtin_cpu_supports("bmi2")) {
      add(avx2_kernels());
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
          __builtin_cpu_supports("avx512vpopcntdq")) {
        add(avx512_kernels());
      }
    }
#endif
  }
};

const Choice& choice() {
  static const Choice made;
  return made;
}

}  // namespace

const Kernels* find_kernels(const char* name) {
  const Choice& all = choice();
  if (name == nullptr || *name == '\0') return all.kernels[all.count - 1];
  for (size_t i = 0; i < all.count; ++i)
    if (std::strcmp(all.names[i], name) == 0) return all.kernels[i];
  return nullptr;
}

const char* const* kernel_names() { return choice().names; }

}  // namespace densehash
