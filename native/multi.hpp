// Tables of substrings of codes, and searches in them: M. Norouzi, A. Punjani, D. J. Fleet, Fast
// exact search in Hamming space with multi-index hashing, PAMI 2014. Outputs belong to the caller.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

#include "checked.hpp"
#include "kernels.hpp"
#include "parallel.hpp"
#include "scan.hpp"
#include "search.hpp"

namespace densehash {

// Codes cut into substrings of nearly equal length, the longer ones first.
class Substrings {
 public:
  static constexpr size_t kMostBits = 26;  // of a substring: its table has 2^bits + 1 entries

  // For n_bits of codes of `bytes` bytes. Throws std::runtime_error if a substring would be empty
  // or too long.
  Substrings(size_t n_bits, size_t bytes, size_t count);

  size_t count() const { return substrings_.size(); }
  unsigned bits(size_t i) const { return substrings_[i].bits; }
  // Where the table of a substring begins; the tables of all substrings are consecutive.
  size_t first_entry(size_t i) const { return substrings_[i].first_entry; }
  size_t n_values(size_t i) const { return size_t{1} << substrings_[i].bits; }
  size_t n_entries() const { return n_entries_; }

  uint32_t value(const uint8_t* code, size_t i) const {
    const Substring& s = substrings_[i];
    uint64_t word = 0;
    if (bytes_ >= 8) {
      std::memcpy(&word, code + s.byte, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
      word = __builtin_bswap64(word);
#endif
    } else {
      for (size_t b = 0; b < bytes_; ++b) word |= uint64_t{code[b]} << 8 * b;
    }
    return static_cast<uint32_t>(word >> s.shift) & s.mask;
  }

 private:
  struct Substring {
    size_t byte;  // the eight bytes from here on hold all its bits
    unsigned shift, bits;
    uint32_t mask;
    size_t first_entry;
  };
  size_t bytes_, n_entries_ = 0;
  std::vector<Substring> substrings_;
};

// Rows of a table: rows[begin:end].
struct Bucket {
  uint32_t begin, end;
};

// Codes and their tables, one for each substring: the rows whose substring t is v are rows[t,
// starts[v]:starts[v + 1]], with the starts of that table. They are ordered by the next substring
// (for the last, the first), then by number. Numbers in starts and rows are checked before they are
// used.
struct MultiTables {
  const uint32_t* starts_of(size_t table) const { return starts + substrings.first_entry(table); }
  const uint32_t* rows_of(size_t table) const { return rows + table * codes.count; }

  Bucket bucket(size_t table, uint32_t value) const {
    const uint32_t* at = starts_of(table) + value;
    const Bucket found{read_once(at), read_once(at + 1)};
    if (found.begin > found.end || found.end > codes.count) throw_damaged();
    return found;
  }

  [[noreturn]] static void throw_damaged() {
    throw std::runtime_error("the tables of substrings say what cannot be");
  }

  const Substrings& substrings;
  Codes codes;             // fewer than 2^32
  const uint32_t* starts;  // (substrings.n_entries())
  const uint32_t* rows;    // (substrings.count(), codes)
  const uint8_t* allowed;  // whether a row may be found; nullptr: all may
};

// Fills starts and rows, which are zeros, with one table per thread. Throws std::runtime_error if
// codes were changed meanwhile.
void build_tables(const Substrings& substrings, Codes codes, Control& control, uint32_t* starts,
                  uint32_t* rows);

// The answers of top_k and within of search.hpp for the rows that may be found; faster if
// neighbours are near. If a search in tables would cost more than `patience` times a scan, a scan
// answers the query. Use 1; in tests, -1 always scans, and infinity hardly ever.
void multi_top_k(const Kernels& kernels, Codes queries, const MultiTables& tables, size_t k,
                 double patience, Control& control, int32_t* distances, int64_t* positions);
void multi_within(const Kernels& kernels, Codes queries, const MultiTables& tables, size_t radius,
                  double patience, Control& control, int64_t* limits,
                  const std::function<Room(size_t total)>& make_room);

// The k nearest of the rows in the n_probes buckets of each table that are most likely to have
// neighbours: those whose bits that differ from the query have the least sum of |margin|, ties by
// the bits of larger margin. Q. Lv, W. Josephson, Z. Wang, M. Charikar, K. Li, Multi-probe
// LSH: efficient indexing for high-dimensional similarity search, VLDB 2007.
// margins: (queries, n_bits).
void multi_probe(const Kernels& kernels, Codes queries, const float* margins, size_t n_bits,
                 const MultiTables& tables, size_t n_probes, size_t k, Control& control,
                 int32_t* distances, int64_t* positions);

}  // namespace densehash
