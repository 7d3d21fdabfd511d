#include <cstring>

#include "kernels.hpp"

#if defined(DENSEHASH_DOTPROD) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace densehash {

// Each is in the file of its name, and puts what it does better into the list.
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
  return __APPLE__;  // all of them
#endif
}
#endif

class Sets {
 public:
  // All that this machine runs, slowest first.
  Sets() {
    add("scalar", use_scalar);
#if defined(__aarch64__)
    add("neon", use_neon);
#ifdef DENSEHASH_DOTPROD
    if (has_dotprod()) use_dotprod(sets[count - 1]);
#endif
#elif defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("popcnt") ||
        !__builtin_cpu_supports("bmi2"))
      return;
    add("avx2", use_avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vpopcntdq"))
      add("avx512", use_avx512);
#endif
  }

  static constexpr size_t kMost = 4;
  Kernels sets[kMost] = {};
  const char* names[kMost + 1] = {};
  size_t count = 0;

 private:
  // A set that DENSEHASH_SIMD can name. What it has no function for, it takes from the one before.
  void add(const char* name, void (*use)(Kernels&)) {
    Kernels& kernels = sets[count];
    if (count > 0) kernels = sets[count - 1];
    kernels.name = names[count] = name;
    use(kernels);
    ++count;
  }
};

const Sets& all_sets() {
  static const Sets made;
  return made;
}

}  // namespace

const Kernels* find_kernels(const char* name) {
  const Sets& all = all_sets();
  if (name == nullptr || *name == '\0') return &all.sets[all.count - 1];
  for (size_t i = 0; i < all.count; ++i)
    if (std::strcmp(all.names[i], name) == 0) return &all.sets[i];
  return nullptr;
}

const char* const* kernel_names() { return all_sets().names; }

}  // namespace densehash
