// Estimates of distances, and a scan for entries whose estimates are low.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "signs.hpp"

namespace densehash {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
// Blocks that are scanned before what was found is looked at.
constexpr size_t kBlocks = 16;

// <s, G q> is base + step * (the sum of what the tables say).
struct Tables {
  const uint8_t* bytes;
  float step, base;
};

// Tables of up to 63 of the products with all 16 signs of four rows of G.
Tables make_tables(const float* products, size_t bits, float least_step, uint8_t* bytes) {
  float widest = 0, base = 0;
  for (size_t b = 0; b < bits; b += 4) {
    const float half = (std::fabs(products[b]) + std::fabs(products[b + 1])) +
                       (std::fabs(products[b + 2]) + std::fabs(products[b + 3]));
    widest = std::max(widest, half);
    base -= half;
  }
  const float step = std::max(2 * widest / 63, least_step);
  const float times = 1 / step;
  for (size_t b = 0; b < bits; b += 4, bytes += 16) {
    float values[16];
    const float w[4] = {products[b] * times, products[b + 1] * times, products[b + 2] * times,
                        products[b + 3] * times};
    values[0] = 0.5f;  // a positive product counts with a sign of 1, a negative one with -1
    for (size_t i = 0; i < 4; ++i) values[0] -= 2 * std::min(w[i], 0.0f);
    for (size_t i = 0; i < 4; ++i)
      for (size_t v = 0, half = size_t{1} << i; v < half; ++v)
        values[v + half] = values[v] + 2 * w[i];
    for (size_t v = 0; v < 16; ++v)
      bytes[v] = static_cast<uint8_t>(std::clamp(static_cast<int>(values[v]), 0, 63));
  }
  return {bytes - bits * 4, step, base};
}

// A query beside a group: what turns sums into estimates, and a bound into one of sums.
struct Beside {
  float estimate(unsigned sum, int alpha, int beta) const {
    const float product = tables.base + tables.step * static_cast<float>(sum);
    return distance + (units.alpha * static_cast<float>(alpha) - product) /
                          (units.beta * static_cast<float>(beta));
  }
  // How far an estimate may be above the distance.
  float slack(int beta) const { return spread / (units.beta * static_cast<float>(beta)); }

  // Entries are wanted whose estimates less their slacks are below the bound.
  void want(float below) {
    bound = below;
    of_sums = bound_of_sums();
  }

  // No wanted entry is missed.
  SignBound bound_of_sums() const {
    constexpr SignBound kAll{0, 0, -32768};
    constexpr float kOne = 32768, kRounding = 4;
    const float of_beta = units.beta * (distance - bound) / tables.step;
    if (!(of_beta > -1)) return kAll;  // nearly all would be wanted
    const auto times = [=](float x) {
      return static_cast<int16_t>(std::min(std::nearbyint(x * kOne), kOne - 1));
    };
    const float offset = std::floor((-tables.base - spread) / tables.step) - kRounding;
    return {times(units.alpha / tables.step), times(of_beta),
            static_cast<int16_t>(std::clamp(offset, -kOne, kOne - 1))};
  }

  Tables tables;
  Units units;
  float distance;  // to the centre, squared
  float spread;    // times |q - c|
  float bound = 0;
  SignBound of_sums{};
};

// Shows keep(q, entry, sum, alpha, beta) the entries begin..end that up to kSignQueries want.
template <class Keep>
void scan(const Kernels& kernels, const uint8_t* blocks, size_t bits, size_t begin, size_t end,
          const Beside* besides, size_t n_queries, Keep&& keep) {
  uint16_t sums[kSignQueries][kBlocks * kBlock];
  SignRun runs[kSignQueries][kBlocks];
  size_t found[kSignQueries];
  SignQuery queries[kSignQueries];
  for (size_t q = 0; q < n_queries; ++q)
    queries[q] = {besides[q].tables.bytes, besides[q].of_sums, sums[q], runs[q], found + q};
  const size_t bytes = block_bytes(bits);
  size_t block = begin / kBlock;
  const size_t last = (end + kBlock - 1) / kBlock;
  while (block < last) {
    const size_t count = std::min(kBlocks, last - block);
    const uint8_t* from = blocks + block * bytes;
    kernels.signs(from, bits, count, queries, n_queries);
    for (size_t q = 0; q < n_queries; ++q) {
      for (size_t i = 0; i < found[q]; ++i) {
        const SignRun run = runs[q][i];
        const size_t entry = (block + run.block) * kBlock;
        uint32_t mask = run.mask;
        if (entry < begin) mask &= ~uint32_t{0} << (begin - entry);
        if (end - entry < kBlock) mask &= (uint32_t{1} << (end - entry)) - 1;
        const uint8_t* at = from + run.block * bytes + 4 * bits;
        for (; mask != 0; mask &= mask - 1) {
          const size_t e = static_cast<size_t>(__builtin_ctz(mask));
          int16_t alpha, beta;
          std::memcpy(&alpha, at + 2 * e, sizeof alpha);
          std::memcpy(&beta, at + 2 * (kBlock + e), sizeof beta);
          keep(q, entry + e, sums[q][i * kBlock + e], alpha, std::max<int>(beta, 1));
        }
      }
    }
    block += count;
  }
}

}  // namespace
}  // namespace densehash
