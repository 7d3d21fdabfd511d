#include <cstring>
#include <vector>

#include "kernels.hpp"

#if defined(DENSEHASH_DOTPROD) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace densehash {

// Each is in the file of its name, and puts its faster functions into the list.
void use_scalar(Kernels& kernels);
void use_neon(Kernels& kernels);
void use_dotprod(Kernels& kernels);
void use_avx2(Kernels& kernels);
void use_avx512(Kernels& kernels);

namespace {

#ifdef DENSEHASH_DOTPROD
bool has_dotprod() {
#ifdef __linux__
  constexpr unsigned long kDotprod = 1 << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotprod) != 0;
#else
  return __APPLE__;  // all of them have it
#endif
}
#endif

struct Sets {
  // All sets that this machine runs, slowest first. Either a separate set, which add() names, or,
  // like dotprod, an addition that some machines of the last set have.
  Sets() {
    add("scalar", use_scalar);
#if defined(__aarch64__)
    add("neon", use_neon);
#ifdef DENSEHASH_DOTPROD
    if (has_dotprod()) use_dotprod(sets.back());
#endif
#elif defined(__x86_64__)
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") &&
                          __builtin_cpu_supports("bmi2");
    const bool has_avx512 =
        has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vpopcntdq");
    if (has_avx2) add("avx2", use_avx2);
    if (has_avx512) add("avx512", use_avx512);
#endif
    names.push_back(nullptr);
  }

  // A set that DENSEHASH_SIMD can name. Functions that it lacks are those of the set before.
  void add(const char* name, void (*use)(Kernels&)) {
    Kernels kernels = sets.empty() ? Kernels{} : sets.back();
    kernels.name = name;
    use(kernels);
    sets.push_back(kernels);
    names.push_back(name);
  }

  std::vector<Kernels> sets;
  std::vector<const char*> names;
};

const Sets& all_sets() {
  static const Sets made;
  return made;
}

}  // namespace

const Kernels* find_kernels(const char* name) {
  const std::vector<Kernels>& sets = all_sets().sets;
  if (name == nullptr || *name == '\0') return &sets.back();
  for (const Kernels& kernels : sets)
    if (std::strcmp(kernels.name, name) == 0) return &kernels;
  return nullptr;
}

const char* const* kernel_names() { return all_sets().names.data(); }

}  // namespace densehash
