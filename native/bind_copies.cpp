// densehash.rows.devices
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>

#include "binding.hpp"

namespace densehash {

namespace {

// Copies bytes, with threads of the caller, into a few buffers that somebody else empties. Piece p
// goes to buffer (first + p) % n. Each thread takes the next slice, whatever the others do, so that
// a thread that loses its CPU does not make the others wait.
class Filling {
 public:
  using Source = Input<uint8_t, 1>;
  using Buffers = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

  Filling(Source source, Buffers buffers, size_t first)
      : source_(source),
        buffers_(buffers),
        from_(source.data()),
        to_(buffers.data()),
        size_(source.shape(0)),
        n_buffers_(buffers.shape(0)),
        piece_(buffers.shape(1)),
        first_(first),
        n_pieces_((size_ + piece_ - 1) / piece_),
        left_(new std::atomic<size_t>[n_pieces_]) {
    for (size_t p = 0; p < n_pieces_; ++p) left_[p] = std::min(piece_, size_ - p * piece_);
  }

  size_t n_pieces() const { return n_pieces_; }

  // Copies until nothing is left, or until stop().
  void work() {
    const size_t n_slices = (piece_ + kSlice - 1) / kSlice;  // of a piece
    for (size_t next; (next = next_.fetch_add(1)) < n_pieces_ * n_slices;) {
      const size_t p = next / n_slices, start = next % n_slices * kSlice;
      const size_t size = std::min(piece_, size_ - p * piece_);
      if (start >= size) continue;  // the last piece may be shorter
      if (!may_begin(p)) return;
      const size_t n = std::min(kSlice, size - start);
      std::memcpy(to_ + (first_ + p) % n_buffers_ * piece_ + start, from_ + p * piece_ + start, n);
      if (left_[p].fetch_sub(n) == n) {
        const std::lock_guard<std::mutex> guard(lock_);
        changed_.notify_all();
      }
    }
  }

  // The first n_pieces may be copied: their buffers are empty.
  void allow(size_t n_pieces) {
    const std::lock_guard<std::mutex> guard(lock_);
    allowed_ = n_pieces;
    changed_.notify_all();
  }

  void wait_for(size_t piece) {
    std::unique_lock<std::mutex> guard(lock_);
    changed_.wait(guard, [&] { return left_[piece] == 0; });
  }

  // Ends threads as soon as possible.
  void stop() {
    const std::lock_guard<std::mutex> guard(lock_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  static constexpr size_t kSlice = size_t{1} << 20;

  bool may_begin(size_t piece) {
    if (piece < allowed_ && !stopped_) return true;
    std::unique_lock<std::mutex> guard(lock_);
    changed_.wait(guard, [&] { return piece < allowed_ || stopped_; });
    return !stopped_;
  }

  Source source_;
  Buffers buffers_;
  const uint8_t* from_;
  uint8_t* to_;
  size_t size_, n_buffers_, piece_, first_, n_pieces_;
  std::unique_ptr<std::atomic<size_t>[]> left_;  // bytes of each piece
  std::atomic<size_t> next_{0}, allowed_{0};
  std::atomic<bool> stopped_{false};
  std::mutex lock_;
  std::condition_variable changed_;
};

}  // namespace

void bind_copies(nb::module_& module) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Filling>(module, "Filling")
      .def(nb::init<Filling::Source, Filling::Buffers, size_t>(), "source"_a, "buffers"_a,
           "first"_a)
      .def_prop_ro("n_pieces", &Filling::n_pieces)
      .def("work", &Filling::work, Released())
      .def("allow", &Filling::allow, "n_pieces"_a, Released())
      .def("wait_for", &Filling::wait_for, "piece"_a, Released())
      .def("stop", &Filling::stop, Released());
}

}  // namespace densehash
