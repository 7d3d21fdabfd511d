// Compares every instruction set that this machine (or an emulator) runs with plain loops, without
// Python, for machines that are not at hand. Prints a line for each set and one for lookups (or
// only for the named one), and fails if any differs.
//
//   make self-check
//
// For another architecture, configure with -DDENSEHASH_SELF_CHECK=ON, its compiler and
// -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=x86_64, and run self_check there.
#include <cstdio>
#include <cstring>
#include <random>

#include "asymmetric.hpp"
#include "keys.hpp"
#include "search.hpp"

using namespace densehash;

namespace {

struct Case {
  size_t bytes, n_queries, n_codes, k, n_threads;
};

std::vector<uint8_t> random_codes(std::mt19937& random, size_t count, size_t bytes) {
  std::vector<uint8_t> codes(count * bytes);
  for (uint8_t& byte : codes) byte = static_cast<uint8_t>(random());
  return codes;
}

size_t plain_distance(const uint8_t* a, const uint8_t* b, size_t bytes) {
  size_t sum = 0;
  for (size_t i = 0; i < bytes; ++i)
    for (unsigned x = a[i] ^ b[i]; x != 0; x &= x - 1) ++sum;
  return sum;
}

bool check(const Kernels& kernels, const Case& c, std::mt19937& random) {
  std::vector<uint8_t> query_bytes = random_codes(random, c.n_queries, c.bytes);
  std::vector<uint8_t> code_bytes = random_codes(random, c.n_codes, c.bytes);
  for (size_t i = 0; i < c.n_codes; i += 3)  // near codes, and duplicates
    for (size_t b = 0; b < c.bytes; ++b)
      if (i % 2 == 0 || b % 5 != 0) code_bytes[i * c.bytes + b] = query_bytes[b];
  const Codes queries{query_bytes.data(), c.n_queries, c.bytes};
  const Codes codes{code_bytes.data(), c.n_codes, c.bytes};
  Control control(c.n_threads, [] { return false; });

  std::vector<uint16_t> all(c.n_queries * c.n_codes);
  distances(kernels, queries, codes, control, all.data());
  std::vector<int64_t> counts(c.n_queries * (codes.bits() + 1)), expected(counts.size());
  histogram(kernels, queries, codes, nullptr, control, counts.data());
  std::vector<int32_t> near(c.n_queries * c.k);
  std::vector<int64_t> indices(near.size());
  top_k(kernels, queries, codes, c.k, control, near.data(), indices.data());
  const size_t radius = codes.bits() / 2;
  std::vector<int64_t> limits(c.n_queries + 1), within_indices;
  std::vector<int32_t> within_distances;
  within(kernels, queries, codes, radius, control, limits.data(), [&](size_t total) {
    within_distances.resize(total + 1);
    within_indices.resize(total + 1);
    return Room{within_distances.data(), within_indices.data()};
  });

  for (size_t q = 0; q < c.n_queries; ++q) {
    std::vector<uint64_t> keys(c.n_codes);
    for (size_t i = 0; i < c.n_codes; ++i) {
      const size_t distance = plain_distance(queries.row(q), codes.row(i), c.bytes);
      if (all[q * c.n_codes + i] != distance) return false;
      ++expected[q * (codes.bits() + 1) + distance];
      keys[i] = HammingKey::make(distance, i);
    }
    std::sort(keys.begin(), keys.end());
    for (size_t i = 0; i < c.k; ++i) {
      const bool there = i < c.n_codes;
      if (near[q * c.k + i] != (there ? static_cast<int64_t>(HammingKey::first(keys[i])) : -1) ||
          indices[q * c.k + i] !=
              (there ? static_cast<int64_t>(HammingKey::position(keys[i])) : -1))
        return false;
    }
    size_t i = 0;
    for (; i < c.n_codes && HammingKey::first(keys[i]) <= radius; ++i) {
      const size_t place = static_cast<size_t>(limits[q]) + i;
      if (place >= static_cast<size_t>(limits[q + 1]) ||
          within_indices[place] != static_cast<int64_t>(HammingKey::position(keys[i])) ||
          within_distances[place] != static_cast<int32_t>(HammingKey::first(keys[i])))
        return false;
    }
    if (static_cast<size_t>(limits[q + 1] - limits[q]) != i) return false;
  }
  return counts == expected;
}

// Sums of lookups of signs and their comparison with a bound; bytes are those of a code.
bool check_signs(const Kernels& kernels, const Case& c, std::mt19937& random) {
  const size_t bits = 8 * c.bytes, count = c.n_codes / kBlock + 1;
  const std::vector<uint8_t> blocks = random_codes(random, count, block_bytes(bits));
  std::vector<uint8_t> lookups = random_codes(random, bits / 4, 16);
  for (uint8_t& entry : lookups) entry &= 63;
  const auto any = [&] { return static_cast<int16_t>(random() % 65535 - 32767); };
  for (const SignBound bound : {SignBound{0, 0, -32768}, SignBound{0, 0, 32767},
                                SignBound{0, 0, static_cast<int16_t>(bits * 8)},
                                SignBound{any(), any(), any()}, SignBound{any(), any(), any()}}) {
    std::vector<uint16_t> sums(count * kBlock);
    std::vector<SignRun> runs(count);
    // Other queries beside it, with other lookups and bounds, change nothing.
    const std::vector<uint8_t> zeros(lookups.size());
    std::vector<uint16_t> other_sums(count * kBlock);
    std::vector<SignRun> other_runs(count);
    size_t found, other;
    const SignQuery asked{lookups.data(), bound, sums.data(), runs.data(), &found};
    const SignQuery beside{zeros.data(), SignBound{any(), any(), any()}, other_sums.data(),
                           other_runs.data(), &other};
    const size_t place = random() % kSignQueries,
                 n = place + 1 + random() % (kSignQueries - place);
    SignQuery queries[kSignQueries];
    std::fill(queries, queries + kSignQueries, beside);
    queries[place] = asked;
    kernels.signs(blocks.data(), bits, count, queries, n);
    size_t next = 0;
    for (size_t b = 0; b < count; ++b) {
      const uint8_t* block = blocks.data() + b * block_bytes(bits);
      BlockFactors factors;
      std::memcpy(&factors, block + 4 * bits, sizeof factors);
      uint32_t mask = 0;
      int expected[kBlock];
      for (size_t e = 0; e < kBlock; ++e) {
        int sum = 0;
        for (size_t four = 0; four < bits / 4; ++four)
          sum += lookups[16 * four + (block[16 * four + e % 16] >> (e < 16 ? 0 : 4) & 15)];
        expected[e] = sum;
        const auto saturated = [](int x) { return std::clamp(x, -32768, 32767); };
        const auto product = [](int x, int y) { return (x * y + 0x4000) >> 15; };
        const int limit = saturated(saturated(product(factors.alphas[e], bound.times_alpha) +
                                              product(factors.betas[e], bound.times_beta)) +
                                    bound.offset);
        if (sum > limit) mask |= uint32_t{1} << e;
      }
      if (mask == 0) continue;
      if (next == found || runs[next].block != b || runs[next].mask != mask) return false;
      for (size_t e = 0; e < kBlock; ++e)
        if (sums[next * kBlock + e] != expected[e]) return false;
      ++next;
    }
    if (next != found) return false;
  }
  return true;
}

// Products and squared distances of vectors of bytes, including the largest ones.
bool check_bytes(const Kernels& kernels, const Case& c, std::mt19937& random) {
  const size_t width = (c.bytes + 15) / 16 * 16, count = (c.n_codes % 64 + 8) / 8 * 8;
  const auto numbers = [&](size_t n) {
    std::vector<int8_t> of_rows(n * width);
    for (int8_t& x : of_rows) x = static_cast<int8_t>(random() % 255 - 127);
    for (size_t i = 0; i < width; ++i) of_rows[i] = i < width / 2 ? -127 : 127;
    return of_rows;
  };
  const std::vector<int8_t> vectors = numbers(c.n_queries), matrix = numbers(count);
  std::vector<int32_t> sums(c.n_queries * count);
  kernels.dots(vectors.data(), c.n_queries, matrix.data(), width, count, sums.data());
  for (size_t v = 0; v < c.n_queries; ++v)
    for (size_t row = 0; row < count; ++row) {
      int32_t sum = 0;
      for (size_t i = 0; i < width; ++i) sum += vectors[v * width + i] * matrix[row * width + i];
      if (sums[v * count + row] != sum) return false;
    }

  if (kernels.squares == nullptr) return true;
  const std::vector<uint8_t> query = random_codes(random, 1, c.bytes);
  std::vector<uint8_t> rows = random_codes(random, count, c.bytes);
  for (size_t b = 0; b < c.bytes; ++b) rows[b] = query[b] < 128 ? 255 : 0;
  std::vector<size_t> positions(count);
  for (size_t i = 0; i < count; ++i) positions[i] = count - 1 - i;
  std::vector<Sums> found(count);
  kernels.squares(query.data(), rows.data(), c.bytes, positions.data(), count, found.data());
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (size_t b = 0; b < c.bytes; ++b) {
      const double difference = query[b] - rows[positions[i] * c.bytes + b];
      sum += difference * difference;
    }
    if (found[i].sum != sum || found[i].length != 0) return false;
  }
  return true;
}

// Sums of lookups, which do not depend on the instruction set.
bool check_lookups(const Case& c, std::mt19937& random) {
  const std::vector<uint8_t> code_bytes = random_codes(random, c.n_codes, c.bytes);
  const Codes codes{code_bytes.data(), c.n_codes, c.bytes};
  std::vector<uint16_t> entries(c.n_queries * c.bytes * 256);
  for (uint16_t& entry : entries) entry = static_cast<uint16_t>(random() % (65536 / c.bytes));
  const ByteLookups lookups{entries.data(), c.n_queries, c.bytes, 4096, 4};
  std::vector<int64_t> limits(c.n_queries + 1), positions;
  for (size_t q = 0; q < c.n_queries; ++q) {
    for (size_t i = 0; i < 3 * q; ++i)
      positions.push_back(static_cast<int64_t>(random() % c.n_codes));
    limits[q + 1] = static_cast<int64_t>(positions.size());
  }
  std::vector<int64_t> counts(c.n_queries * lookups.n_levels), relevant_counts(counts.size());
  const Relevant relevant{limits.data(), positions.data(), relevant_counts.data()};
  Control control(c.n_threads, [] { return false; });
  lookup_histogram(lookups, codes, &relevant, control, counts.data());

  const auto level = [&](size_t q, size_t code) {
    size_t sum = 0;
    for (size_t b = 0; b < c.bytes; ++b) sum += lookups.of(q)[b * 256 + codes.row(code)[b]];
    return q * lookups.n_levels + (sum >> lookups.shift);
  };
  for (size_t q = 0; q < c.n_queries; ++q) {
    for (size_t i = 0; i < c.n_codes; ++i) --counts[level(q, i)];
    for (int64_t i = limits[q]; i < limits[q + 1]; ++i)
      --relevant_counts[level(q, static_cast<size_t>(positions[static_cast<size_t>(i)]))];
  }
  const auto none = [](const std::vector<int64_t>& left) {
    return std::all_of(left.begin(), left.end(), [](int64_t count) { return count == 0; });
  };
  return none(counts) && none(relevant_counts);
}

}  // namespace

int main(int n_arguments, char** arguments) {
  std::mt19937 random(1);
  int n_failed = 0;
  const auto check_all = [&](const char* name, auto&& check_one) {
    if (n_arguments > 1 && std::strcmp(arguments[1], name) != 0) return;
    int passed = 0, failed = 0;
    for (const size_t bytes : {1,  2,  3,  4,  5,  6,  8,  9,  12, 13,  16,  17,  24,
                               25, 31, 32, 33, 40, 48, 50, 64, 65, 100, 125, 256, 512})
      for (const Case c :
           {Case{bytes, 1, 700, 10, 1}, Case{bytes, 3, 17, 20, 2}, Case{bytes, 33, 130, 130, 1},
            Case{bytes, 64, 2060, 5, 2}, Case{bytes, 70, 1025, 100, 3},
            Case{bytes, 33, 2500, 2400, 2}, Case{bytes, 92, 259, 30, 1}}) {
        if (check_one(c)) {
          ++passed;
        } else {
          ++failed;
          std::printf("%s differs: %zu bytes, %zu queries, %zu codes, k = %zu, %zu threads\n",
                      name, c.bytes, c.n_queries, c.n_codes, c.k, c.n_threads);
        }
      }
    std::printf("%s: %d passed, %d failed\n", name, passed, failed);
    n_failed += failed;
  };
  for (const char* const* name = kernel_names(); *name != nullptr; ++name)
    check_all(*name, [&](const Case& c) {
      const Kernels& kernels = *find_kernels(*name);
      return check(kernels, c, random) && check_bytes(kernels, c, random) &&
             (c.bytes > 128 || check_signs(kernels, c, random));
    });
  check_all("lookups", [&](const Case& c) { return check_lookups(c, random); });
  return n_failed == 0 ? 0 : 1;
}
