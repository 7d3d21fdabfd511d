// Threads that live for one call, so that a forked child inherits nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace densehash {

// Thrown to stop a worker after another one has failed or the caller was interrupted.
struct Stopped {};

// Shared by the workers of a call: how many they are, and whether to continue.
class Control {
 public:
  // `interrupted` is called about ten times a second, only on the calling thread.
  Control(size_t n_threads, std::function<bool()> interrupted)
      : n_threads_(n_threads), interrupted_(std::move(interrupted)) {}

  size_t n_threads() const { return n_threads_; }
  // How many threads it pays to start for this many bytes of work: codes read times queries.
  size_t worth_starting(double bytes) const {
    return static_cast<size_t>(
        std::min(static_cast<double>(n_threads_), 1 + bytes / kWorkOfThread));
  }
  bool was_interrupted() const { return was_interrupted_; }

  // Call it every few microseconds of work, or less often.
  void poll(size_t worker) {
    if (worker == 0) look_for_interrupt();
    if (stop_.load(std::memory_order_relaxed)) throw Stopped{};
  }

  // Calls body(task, worker) for every task below n_tasks, with at most n_workers threads. A worker
  // takes tasks in ascending order; the caller is worker 0. Throws the first error of a body, or
  // Stopped.
  template <class Body>
  void run(size_t n_workers, size_t n_tasks, Body&& body) {
    if (n_tasks < n_workers) n_workers = n_tasks;
    std::atomic<size_t> next{0};
    std::mutex lock;  // guards the two below
    std::exception_ptr error;
    size_t n_ended = 0;
    std::condition_variable ended;
    const auto work = [&](size_t worker) {
      try {
        for (size_t task; (task = next.fetch_add(1)) < n_tasks;) body(task, worker);
      } catch (...) {
        const std::lock_guard<std::mutex> guard(lock);
        if (!error) error = std::current_exception();
        stop_ = true;
      }
    };
    Joined threads;
    try {
      threads.reserve(n_workers);
      for (size_t worker = 1; worker < n_workers; ++worker) {
        threads.emplace_back([&, worker] {
          work(worker);
          const std::lock_guard<std::mutex> guard(lock);
          ++n_ended;
          ended.notify_one();
        });
      }
    } catch (const std::exception&) {
      // No more threads, or no memory for one: the threads that have started, and the caller, do
      // the work.
    }
    work(0);
    // The caller may finish long before the others, and must still notice an interrupt.
    std::unique_lock<std::mutex> waiting(lock);
    while (!ended.wait_for(waiting, kPatience, [&] { return n_ended == threads.size(); })) {
      waiting.unlock();
      look_for_interrupt();
      waiting.lock();
    }
    waiting.unlock();
    if (error) std::rethrow_exception(error);
    if (was_interrupted_) throw Stopped{};
  }

 private:
  using Clock = std::chrono::steady_clock;
  // Joins its threads before the data that they use is destroyed, whatever is thrown.
  struct Joined : std::vector<std::thread> {
    ~Joined() {
      for (std::thread& thread : *this) thread.join();
    }
  };
  static constexpr std::chrono::milliseconds kPatience{100};
  static constexpr double kWorkOfThread = 4e6;

  void look_for_interrupt() {
    const auto now = Clock::now();
    if (was_interrupted_ || now - asked_ < kPatience) return;
    asked_ = now;
    if (!interrupted_()) return;
    was_interrupted_ = true;
    stop_ = true;
  }

  size_t n_threads_;
  std::function<bool()> interrupted_;
  Clock::time_point asked_ = Clock::now();
  std::atomic<bool> stop_{false};
  bool was_interrupted_ = false;
};

}  // namespace densehash
