#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "signs.hpp"

#define ALWAYS_INLINE inline __attribute__((always_inline))

namespace densehash {
namespace {

typedef float Floats4 __attribute__((vector_size(16)));

// Rows that are multiplied together, and that a thread takes at a time.
constexpr size_t kTogether = 8, kRows = 256;

ALWAYS_INLINE Floats4 load(const float* from) {
  Floats4 four;
  std::memcpy(&four, from, sizeof four);
  return four;
}
ALWAYS_INLINE void store(float* to, Floats4 four) { std::memcpy(to, &four, sizeof four); }

// Eight rows times a matrix (width, bits), eight columns at a time.
void multiply_8(const float* const* rows, const float* matrix, size_t width, size_t bits,
                float* const* out) {
  for (size_t column = 0; column < bits; column += 8) {
    Floats4 low[kTogether] = {}, high[kTogether] = {};
    const float* from = matrix + column;
    for (size_t i = 0; i < width; ++i, from += bits) {
      const Floats4 a = load(from), b = load(from + 4);
#pragma GCC unroll 8
      for (size_t r = 0; r < kTogether; ++r) {
        const float x = rows[r][i];
        const Floats4 four = {x, x, x, x};
        low[r] += four * a;
        high[r] += four * b;
      }
    }
    for (size_t r = 0; r < kTogether; ++r) {
      store(out[r] + column, low[r]);
      store(out[r] + column + 4, high[r]);
    }
  }
}

// count is at least 1; the last row is repeated where there are fewer than eight.
void multiply_rows(const float* rows, size_t count, const Decoder& decoder, float* out) {
  for (size_t first = 0; first < count; first += kTogether) {
    const float* from[kTogether];
    float* to[kTogether];
    for (size_t r = 0; r < kTogether; ++r) {
      const size_t row = std::min(first + r, count - 1);
      from[r] = rows + row * decoder.width;
      to[r] = out + row * decoder.bits;
    }
    multiply_8(from, decoder.matrix, decoder.width, decoder.bits, to);
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

// left: G (r - s G), (bits,), kept up to date; G r at the start.
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
  // Eight signs, one after the other; what they leave is written once for all of them.
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
      // Few bits flip: eight are asked at once.
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

void multiply(const float* rows, size_t count, const Decoder& decoder, Control& control,
              float* out) {
  const double bytes = static_cast<double>(count * decoder.width) * static_cast<double>(decoder.bits);
  const size_t n_tasks = (count + kRows - 1) / kRows;
  control.run(control.worth_starting(bytes), n_tasks, [&](size_t task, size_t worker) {
    control.poll(worker);
    const size_t first = task * kRows, n = std::min(kRows, count - first);
    multiply_rows(rows + first * decoder.width, n, decoder, out + first * decoder.bits);
  });
}

void encode_signs(const Decoder& decoder, const Residuals& residuals, size_t sweeps,
                  Control& control, uint8_t* codes, Lengths* lengths) {
  const size_t width = decoder.width, bits = decoder.bits;
  const size_t n_tasks = (residuals.count + kRows - 1) / kRows;
  const double work = static_cast<double>(residuals.count * bits) * static_cast<double>(width + bits);
  control.run(control.worth_starting(work), n_tasks, [&](size_t task, size_t worker) {
    Descent descent(decoder);
    std::vector<float> rows(kTogether * width), products(kTogether * bits), left(bits);
    const size_t end = std::min((task + 1) * kRows, residuals.count);
    for (size_t first = task * kRows; first < end; first += kTogether) {
      control.poll(worker);
      const size_t n = std::min(kTogether, end - first);
      for (size_t r = 0; r < n; ++r) {
        const float* row = residuals.rows + (first + r) * width;
        float* to = rows.data() + r * width;
        std::copy_n(row, width, to);
        if (residuals.centers == nullptr) continue;
        const float* center = residuals.centers + residuals.labels[first + r] * width;
        for (size_t i = 0; i < width; ++i) to[i] -= center[i];
      }
      multiply_rows(rows.data(), n, decoder, products.data());
      for (size_t r = 0; r < n; ++r) {
        const float* of_row = products.data() + r * bits;
        std::copy_n(of_row, bits, left.data());
        descent.find(left.data(), sweeps);
        pack(descent.signs(), bits, codes + (first + r) * bits / 8);
        // s G Gᵀ = G r - left
        const float agreement = product(descent.signs(), of_row, bits);
        const float* row = rows.data() + r * width;
        lengths[first + r] = {product(row, row, width),
                              agreement - product(descent.signs(), left.data(), bits), agreement};
      }
    }
  });
}

}  // namespace densehash
