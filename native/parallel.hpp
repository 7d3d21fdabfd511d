// Threads for the length of one call: nothing outlives it, so a fork finds nothing to inherit.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace densehash {

// Unwinds a worker after another one failed or the caller was interrupted.
struct Stopped {};

// What the workers of a call share: how many, and whether to go on.
class Control {
 public:
  // `interrupted` is asked about ten times a second, on the calling thread only.
  Control(size_t n_threads, std::function<bool()> interrupted)
      : n_threads_(n_threads), interrupted_(std::move(interrupted)) {}

  size_t n_threads() const { return n_threads_; }
  bool was_interrupted() const { return was_interrupted_; }

  // To be called every few microseconds of work or less often.
  void poll(size_t worker) {
    if (worker == 0) {
      const auto now = Clock::now();
      if (now - asked_ > std::chrono::milliseconds(100)) {
        asked_ = now;
        if (interrupted_()) {
          was_interrupted_ = true;
          stop_ = true;
        }
      }
    }
    if (stop_.load(std::memory_order_relaxed)) throw Stopped{};
  }

  // body(task, worker) for every task below n_tasks, by at most n_workers threads. A worker takes
  // tasks in rising order; the caller is worker 0. Throws what a body threw first, or Stopped.
  template <class Body>
  void run(size_t n_workers, size_t n_tasks, Body&& body) {
    std::atomic<size_t> next{0};
    std::exception_ptr error;
    std::mutex error_lock;
    auto work = [&](size_t worker) {
      try {
        for (size_t task; (task = next.fetch_add(1)) < n_tasks;) body(task, worker);
      } catch (...) {
        const std::lock_guard<std::mutex> guard(error_lock);
        if (!error) error = std::current_exception();
        stop_ = true;
      }
    };
    std::vector<std::thread> threads;
    if (n_tasks < n_workers) n_workers = n_tasks;
    threads.reserve(n_workers);
    try {
      for (size_t worker = 1; worker < n_workers; ++worker) threads.emplace_back(work, worker);
    } catch (const std::system_error&) {
      // No more threads to be had: those that started, and the caller, do the work.
    }
    work(0);
    for (std::thread& thread : threads) thread.join();
    if (error) std::rethrow_exception(error);
  }

 private:
  using Clock = std::chrono::steady_clock;

  size_t n_threads_;
  std::function<bool()> interrupted_;
  Clock::time_point asked_ = Clock::now();
  std::atomic<bool> stop_{false};
  bool was_interrupted_ = false;
};

}  // namespace densehash
