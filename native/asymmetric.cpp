#include "asymmetric.hpp"

#include <algorithm>
#include <cstring>

namespace densehash {
namespace {

// The queries of a quad are looked up together: four entries of 16 bits are one word, and because
// all sums are below 65536, one addition adds all four.
constexpr size_t kQuad = 4;
// Bytes of a code that are looked up at once: their lookups fill a quarter of a small cache.
constexpr size_t kPart = 8;
// Codes whose sums are kept at a time.
constexpr size_t kCodes = 1024;
// Bytes of codes that all queries of a batch see before the next codes: they stay in the
// second-level cache.
constexpr size_t kChunkBytes = 262144;
// Memory for the lookups and counts of a batch, for each thread.
constexpr size_t kBatchBytes = 4 * 1024 * 1024;
// Counts of a task are 32 bits wide.
constexpr size_t kMostCodes = size_t{1} << 31;

// The first BYTES bytes as one number; the first byte is the lowest.
template <size_t BYTES>
uint64_t load(const uint8_t* p) {
  uint64_t word = 0;
  std::memcpy(&word, p, BYTES);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

// Sums over some bytes of every code; sets or adds to `sums`. lookups: (BYTES, 256).
template <size_t BYTES, bool ADD>
void sum_bytes(const uint8_t* __restrict codes, size_t stride, size_t count,
               const uint64_t* __restrict lookups, uint64_t* __restrict sums) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = load<BYTES>(codes + i * stride);
    uint64_t sum = ADD ? sums[i] : 0;
    for (size_t b = 0; b < BYTES; ++b) sum += lookups[b * 256 + (word >> 8 * b & 255)];
    sums[i] = sum;
  }
}

template <bool ADD>
void sum_part(size_t bytes, const uint8_t* codes, size_t stride, size_t count,
              const uint64_t* lookups, uint64_t* sums) {
  switch (bytes) {
    case 1: return sum_bytes<1, ADD>(codes, stride, count, lookups, sums);
    case 2: return sum_bytes<2, ADD>(codes, stride, count, lookups, sums);
    case 3: return sum_bytes<3, ADD>(codes, stride, count, lookups, sums);
    case 4: return sum_bytes<4, ADD>(codes, stride, count, lookups, sums);
    case 5: return sum_bytes<5, ADD>(codes, stride, count, lookups, sums);
    case 6: return sum_bytes<6, ADD>(codes, stride, count, lookups, sums);
    case 7: return sum_bytes<7, ADD>(codes, stride, count, lookups, sums);
    default: return sum_bytes<kPart, ADD>(codes, stride, count, lookups, sums);
  }
}

// The lookups and counts of a few queries.
class Quads {
 public:
  Quads(const ByteLookups& lookups, size_t first, size_t n_queries)
      : n_queries_(n_queries), n_levels_(lookups.n_levels), shift_(lookups.shift),
        words_(lookups.bytes * 256), lookups_(n_quads() * words_),
        counts_(n_quads() * kQuad * n_levels_), sums_(kCodes) {
    for (size_t q = 0; q < n_queries; ++q) {
      const uint16_t* from = lookups.of(first + q);
      uint64_t* to = lookups_.data() + q / kQuad * words_;
      const unsigned place = 16 * static_cast<unsigned>(q % kQuad);
      for (size_t i = 0; i < words_; ++i) to[i] |= static_cast<uint64_t>(from[i]) << place;
    }
  }

  // Memory for a query.
  static size_t bytes_a_query(const ByteLookups& lookups) {
    return lookups.bytes * 256 * sizeof(uint64_t) / kQuad + lookups.n_levels * sizeof(uint32_t);
  }

  // Counts the codes [begin, end).
  void visit(const Codes& codes, size_t begin, size_t end, Control& control, size_t worker) {
    const size_t chunk = std::max(kChunkBytes / codes.bytes / kCodes, size_t{1}) * kCodes;
    for (size_t first = begin; first < end; first += chunk) {
      const size_t stop = std::min(first + chunk, end);
      for (size_t quad = 0; quad < n_quads(); ++quad)
        for (size_t at = first; at < stop; at += kCodes) {
          control.poll(worker);
          count(quad, codes, at, std::min(kCodes, stop - at));
        }
    }
  }

  // Adds what was counted to (queries, levels).
  void add_to(int64_t* counts) const {
    for (size_t i = 0; i < n_queries_ * n_levels_; ++i) counts[i] += counts_[i];
  }

 private:
  size_t n_quads() const { return (n_queries_ + kQuad - 1) / kQuad; }

  void count(size_t quad, const Codes& codes, size_t first, size_t n) {
    const uint64_t* lookups = lookups_.data() + quad * words_;
    for (size_t byte = 0; byte < codes.bytes; byte += kPart) {
      const auto sum = byte == 0 ? sum_part<false> : sum_part<true>;
      sum(std::min(kPart, codes.bytes - byte), codes.row(first) + byte, codes.bytes, n,
          lookups + byte * 256, sums_.data());
    }
    uint32_t* of_0 = counts_.data() + quad * kQuad * n_levels_;
    uint32_t* of_1 = of_0 + n_levels_;
    uint32_t* of_2 = of_1 + n_levels_;
    uint32_t* of_3 = of_2 + n_levels_;
    for (size_t i = 0; i < n; ++i) {
      const uint64_t four = sums_[i];
      ++of_0[(four & 0xffff) >> shift_];
      ++of_1[(four >> 16 & 0xffff) >> shift_];
      ++of_2[(four >> 32 & 0xffff) >> shift_];
      ++of_3[(four >> 48) >> shift_];
    }
  }

  size_t n_queries_, n_levels_;
  unsigned shift_;
  size_t words_;                   // of a quad's lookups
  std::vector<uint64_t> lookups_;  // (quads, bytes, 256)
  std::vector<uint32_t> counts_;   // (quads, 4, levels)
  std::vector<uint64_t> sums_;     // of some codes
};

void count_relevant(const ByteLookups& lookups, Codes codes, const Relevant& relevant,
                    Control& control) {
  constexpr size_t kAhead = 16;
  const double n_lookups =
      static_cast<double>(relevant.limits[lookups.count]) * static_cast<double>(codes.bytes);
  control.run(control.worth_starting(n_lookups), lookups.count, [&](size_t q, size_t worker) {
    const uint16_t* of_query = lookups.of(q);
    int64_t* counts = relevant.counts + q * lookups.n_levels;
    int64_t positions[Relevant::kSome];
    const int64_t end = relevant.limits[q + 1];
    for (int64_t first = relevant.limits[q]; first < end; first += Relevant::kSome) {
      control.poll(worker);
      const size_t n = relevant.copy(first, end, codes.count, positions);
      for (size_t i = 0; i < n; ++i) {
        if (i + kAhead < n)
          __builtin_prefetch(codes.row(static_cast<size_t>(positions[i + kAhead])));
        const uint8_t* code = codes.row(static_cast<size_t>(positions[i]));
        unsigned sum = 0;
        for (size_t b = 0; b < codes.bytes; ++b) sum += of_query[b * 256 + code[b]];
        ++counts[sum >> lookups.shift];
      }
    }
  });
}

}  // namespace

void lookup_histogram(const ByteLookups& lookups, Codes codes, const Relevant* relevant,
                      Control& control, int64_t* counts) {
  if (lookups.count == 0 || codes.count == 0) return;
  const size_t n_workers = control.worth_starting(static_cast<double>(lookups.count) *
                                                  static_cast<double>(codes.count * codes.bytes));
  // Each thread gets a batch or, if batches are too few, a range of the codes.
  const size_t fitting = std::max(kBatchBytes / Quads::bytes_a_query(lookups), size_t{1});
  const size_t even = (lookups.count + n_workers - 1) / n_workers;
  const size_t in_batch = (std::min(fitting, even) + kQuad - 1) / kQuad * kQuad;
  const size_t n_batches = (lookups.count + in_batch - 1) / in_batch;
  const bool side_by_side = n_batches >= 4 * n_workers || n_batches % n_workers == 0;
  const size_t n_ranges = std::max((codes.count + kMostCodes - 1) / kMostCodes,
                                   side_by_side ? 1 : (4 * n_workers + n_batches - 1) / n_batches);
  const size_t in_range = (codes.count + n_ranges - 1) / n_ranges;
  std::mutex lock;  // guards counts: sums of integers are the same in any order
  control.run(n_workers, n_batches * n_ranges, [&](size_t task, size_t worker) {
    const size_t first = task / n_ranges * in_batch;
    const size_t begin = std::min(task % n_ranges * in_range, codes.count);
    const size_t end = std::min(begin + in_range, codes.count);
    Quads quads(lookups, first, std::min(in_batch, lookups.count - first));
    quads.visit(codes, begin, end, control, worker);
    const std::lock_guard<std::mutex> guard(lock);
    quads.add_to(counts + first * lookups.n_levels);
  });
  if (relevant != nullptr) count_relevant(lookups, codes, *relevant, control);
}

}  // namespace densehash
