#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "signs.hpp"
#include "whole.hpp"

namespace densehash {
namespace {

typedef float Floats4 __attribute__((vector_size(16)));

// How many rows are multiplied together, and how many a thread encodes at a time.
constexpr size_t kTogether = 8, kRows = 64;

ALWAYS_INLINE Floats4 load(const float* from) {
  Floats4 four;
  std::memcpy(&four, from, sizeof four);
  return four;
}
ALWAYS_INLINE void store(float* to, Floats4 four) { std::memcpy(to, &four, sizeof four); }

// A matrix (width, bits) as panels of eight columns: (bits / 8, width, 8).
std::vector<float> panels_of(const float* matrix, size_t width, size_t bits) {
  std::vector<float> panels(width * bits);
  for (size_t column = 0; column < bits; column += 8)
    for (size_t i = 0; i < width; ++i)
      std::copy_n(matrix + i * bits + column, 8, panels.data() + (column * width + 8 * i));
  return panels;
}

// Eight rows times a panel.
void multiply_8(const float* const* rows, const float* panel, size_t width, float* const* out) {
  Floats4 low[kTogether] = {}, high[kTogether] = {};
  for (size_t i = 0; i < width; ++i, panel += 8) {
    const Floats4 a = load(panel), b = load(panel + 4);
#pragma GCC unroll 8
    for (size_t r = 0; r < kTogether; ++r) {
      const float x = rows[r][i];
      const Floats4 four = {x, x, x, x};
      low[r] += four * a;
      high[r] += four * b;
    }
  }
  for (size_t r = 0; r < kTogether; ++r) {
    store(out[r], low[r]);
    store(out[r] + 4, high[r]);
  }
}

// A panel stays in the first-level cache for all rows. If the number of rows is no multiple of
// eight, the last row is repeated.
void multiply_panels(const float* rows, size_t count, const float* panels, size_t width,
                     size_t bits, float* out) {
  for (size_t column = 0; column < bits; column += 8)
    for (size_t row = 0; row < count; row += kTogether) {
      const float* from[kTogether];
      float* to[kTogether];
      for (size_t r = 0; r < kTogether; ++r) {
        const size_t of_row = std::min(row + r, count - 1);
        from[r] = rows + of_row * width;
        to[r] = out + of_row * bits + column;
      }
      multiply_8(from, panels + column * width, width, to);
    }
}

float product(const float* x, const float* y, size_t n) {
  Floats4 sums[4] = {};
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (size_t j = 0; j < 4; ++j) sums[j] += load(x + i + 4 * j) * load(y + i + 4 * j);
  const Floats4 four = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float sum = (four[0] + four[1]) + (four[2] + four[3]);
  for (; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// left: G (r - s G), (bits,), kept up to date; at the start, G r.
class Descent {
 public:
  Descent(const Decoder& decoder)
      : gram_(decoder.gram), bits_(decoder.bits), diagonal_(bits_), signs_(bits_) {
    for (size_t b = 0; b < bits_; ++b) diagonal_[b] = gram_[b * bits_ + b];
  }
  const float* signs() const { return signs_.data(); }

  void find(float* left, size_t sweeps) {
    for (size_t first = 0; first < bits_; first += 8) choose(left, first);
    for (size_t sweep = 0; sweep < sweeps; ++sweep)
      if (!flip(left)) break;
  }

 private:
  // Chooses eight signs, one after the other; `left` is written once for all of them.
  void choose(float* left, size_t first) {
    float* const signs = signs_.data() + first;
    const float* const of_first = gram_ + first * bits_;
    Floats4 low = load(left + first), high = load(left + first + 4);
#pragma GCC unroll 8
    for (size_t b = 0; b < 8; ++b) {
      signs[b] = (b < 4 ? low[b] : high[b - 4]) < 0 ? -1.0f : 1.0f;
      low -= signs[b] * load(of_first + b * bits_ + first);
      high -= signs[b] * load(of_first + b * bits_ + first + 4);
    }
    for (size_t to = 0; to < bits_; to += 4) {
      Floats4 four = load(left + to);
#pragma GCC unroll 8
      for (size_t b = 0; b < 8; ++b) four -= signs[b] * load(of_first + b * bits_ + to);
      store(left + to, four);
    }
  }
  ALWAYS_INLINE void subtract(float* left, size_t bit, float times) const {
    const float* of_bit = gram_ + bit * bits_;
    for (size_t b = 0; b < bits_; b += 8) {
      store(left + b, load(left + b) - times * load(of_bit + b));
      store(left + b + 4, load(left + b + 4) - times * load(of_bit + b + 4));
    }
  }
  ALWAYS_INLINE bool gains(const float* left, size_t bit) const {
    return signs_[bit] * left[bit] + diagonal_[bit] < 0;
  }

  bool flip(float* left) {
    bool any = false;
    for (size_t first = 0; first < bits_; first += 8) {
      // Few bits flip, so eight are tested at once.
      int found = 0;
      for (size_t b = first; b < first + 8; ++b) found |= gains(left, b);
      if (!found) continue;
      for (size_t b = first; b < first + 8; ++b) {
        if (!gains(left, b)) continue;
        signs_[b] = -signs_[b];
        subtract(left, b, 2 * signs_[b]);
        any = true;
      }
    }
    return any;
  }

  const float* gram_;
  size_t bits_;
  std::vector<float> diagonal_, signs_;
};

void pack(const float* signs, size_t bits, uint8_t* code) {
  for (size_t byte = 0; byte < bits / 8; ++byte) {
    unsigned value = 0;
    for (size_t b = 0; b < 8; ++b) value |= unsigned{signs[8 * byte + b] > 0} << b;
    code[byte] = static_cast<uint8_t>(value);
  }
}

}  // namespace

void multiply(const float* rows, size_t count, const float* matrix, size_t width, size_t bits,
              float* out) {
  multiply_panels(rows, count, panels_of(matrix, width, bits).data(), width, bits, out);
}

void encode_signs(const Decoder& decoder, const Residuals& residuals, size_t sweeps,
                  Control& control, uint8_t* codes, Lengths* lengths) {
  const size_t width = decoder.width, bits = decoder.bits;
  const size_t n_tasks = (residuals.count + kRows - 1) / kRows;
  const double work =
      static_cast<double>(residuals.count * bits) * static_cast<double>(width + bits);
  control.run(control.worth_starting(work), n_tasks, [&](size_t task, size_t worker) {
    control.poll(worker);
    Descent descent(decoder);
    std::vector<float> residual(width), units(kRows), products(bits), left(bits);
    std::vector<int8_t> whole(kRows * decoder.padded_width);
    std::vector<int32_t> sums(kRows * bits);
    const size_t first = task * kRows, n = std::min(kRows, residuals.count - first);
    for (size_t r = 0; r < n; ++r) {
      const float* row = residuals.rows + (first + r) * width;
      const float* center = residuals.centers + residuals.labels[first + r] * width;
      for (size_t i = 0; i < width; ++i) residual[i] = row[i] - center[i];
      const float squared = product(residual.data(), residual.data(), width);
      units[r] = to_whole(residual.data(), width, whole.data() + r * decoder.padded_width) *
                 (squared > 0 ? 1 / std::sqrt(squared) : 0);
      lengths[first + r].residual = squared;
    }
    decoder.dots(whole.data(), n, decoder.matrix, decoder.padded_width, bits, sums.data());
    for (size_t r = 0; r < n; ++r) {
      const int32_t* const of_row = sums.data() + r * bits;
      for (size_t b = 0; b < bits; ++b)
        products[b] = decoder.steps[b] * units[r] * static_cast<float>(of_row[b]);
      std::copy_n(products.data(), bits, left.data());
      descent.find(left.data(), sweeps);
      const float* signs = descent.signs();
      pack(signs, bits, codes + (first + r) * bits / 8);
      // s G Gᵀ = G r - left
      lengths[first + r].decoded =
          product(signs, products.data(), bits) - product(signs, left.data(), bits);
      lengths[first + r].center =
          product(signs, residuals.products + residuals.labels[first + r] * bits, bits);
      lengths[first + r].product =
          std::sqrt(lengths[first + r].residual) * product(signs, products.data(), bits);
    }
  });
}

void second_groups(const Residuals& residuals, size_t width, const NearCenters& near,
                   Control& control, uint32_t* out) {
  const size_t n_tasks = (residuals.count + kRows - 1) / kRows;
  const double work = static_cast<double>(residuals.count * near.count * width);
  control.run(control.worth_starting(work), n_tasks, [&](size_t task, size_t worker) {
    control.poll(worker);
    const size_t end = std::min((task + 1) * kRows, residuals.count);
    std::vector<float> residual(width);
    for (size_t r = task * kRows; r < end; ++r) {
      const float* row = residuals.rows + r * width;
      const size_t own = residuals.labels[r];
      const float* center = residuals.centers + own * width;
      for (size_t i = 0; i < width; ++i) residual[i] = row[i] - center[i];
      const float squared = std::max(product(residual.data(), residual.data(), width),
                                     std::numeric_limits<float>::min());
      const float along = product(residual.data(), row, width);
      const uint32_t* const others = near.numbers + own * near.count;
      float best = std::numeric_limits<float>::infinity();
      out[r] = others[0];
      for (size_t j = 0; j < near.count; ++j) {
        const float with = product(row, residuals.centers + others[j] * width, width);
        const float parallel = along - (with - near.products[own * near.count + j]);
        const float distance = near.squares[others[j]] - 2 * with + parallel * parallel / squared;
        if (distance < best) {
          best = distance;
          out[r] = others[j];
        }
      }
    }
  });
}

// --- layout ------------------------------------------------------------------------------------

namespace {

// Where four bits of an entry are in its block.
struct Place {
  Place(size_t entry, size_t bits, size_t four)
      : byte(entry / kBlock * block_bytes(bits) + 16 * four + entry % 16),
        shift(entry % kBlock < 16 ? 0 : 4) {}
  size_t byte;
  unsigned shift;
};

size_t factors_at(size_t entry, size_t bits) {
  return entry / kBlock * block_bytes(bits) + 4 * bits + entry % kBlock * sizeof(int16_t);
}

}  // namespace

void pack_signs(const uint8_t* codes, const int16_t* factors, size_t count, size_t bits,
                uint8_t* blocks) {
  std::fill_n(blocks, (count + kBlock - 1) / kBlock * block_bytes(bits), uint8_t{0});
  for (size_t entry = 0; entry < count; ++entry) {
    const uint8_t* code = codes + entry * bits / 8;
    for (size_t four = 0; four < bits / 4; ++four) {
      const Place place(entry, bits, four);
      const unsigned value = code[four / 2] >> four % 2 * 4 & 15u;
      blocks[place.byte] = static_cast<uint8_t>(blocks[place.byte] | value << place.shift);
    }
    uint8_t* to = blocks + factors_at(entry, bits);
    std::memcpy(to, factors + 2 * entry, sizeof *factors);
    std::memcpy(to + sizeof(BlockFactors::alphas), factors + 2 * entry + 1, sizeof *factors);
  }
}

void unpack_signs(const uint8_t* blocks, size_t count, size_t bits, uint8_t* codes,
                  int16_t* factors) {
  for (size_t entry = 0; entry < count; ++entry) {
    uint8_t* code = codes + entry * bits / 8;
    for (size_t byte = 0; byte < bits / 8; ++byte) {
      const Place low(entry, bits, 2 * byte), high(entry, bits, 2 * byte + 1);
      code[byte] = static_cast<uint8_t>((blocks[low.byte] >> low.shift & 15u) |
                                        (blocks[high.byte] >> high.shift & 15u) << 4);
    }
    const uint8_t* from = blocks + factors_at(entry, bits);
    std::memcpy(factors + 2 * entry, from, sizeof *factors);
    std::memcpy(factors + 2 * entry + 1, from + sizeof(BlockFactors::alphas), sizeof *factors);
  }
}

}  // namespace densehash
