// Runs threads of a call in which the n-th allocation fails, for every n: the work is done, or
// std::bad_alloc is thrown, and no thread is left behind (that would end the program). Compiled and
// run by tests/test_hamming_process.py.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "parallel.hpp"

namespace {
std::atomic<long> n_left{-1};  // allocations until one fails; below zero, none fails
}

void* operator new(std::size_t size) {
  if (n_left.load() >= 0 && n_left.fetch_sub(1) == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

int main() {
  constexpr size_t kTasks = 32;
  for (long at = 0;; ++at) {
    std::atomic<size_t> done{0};
    const auto work = [&](size_t, size_t) {
      const std::vector<char> memory(100);
      std::this_thread::sleep_for(std::chrono::microseconds(20));  // so that others get a task
      ++done;
    };
    bool is_out = false;
    n_left = at;
    try {
      densehash::Control control(4, [] { return false; });
      control.run(4, kTasks, work);
    } catch (const std::bad_alloc&) {
      is_out = true;
    }
    const bool has_failed = n_left.exchange(-1) < 0;
    if (!is_out && done != kTasks) return 1;
    if (has_failed) continue;
    std::printf("%ld allocations\n", at);  // there were fewer allocations
    return is_out ? 1 : 0;
  }
}
