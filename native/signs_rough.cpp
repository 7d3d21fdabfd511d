// Products and sums may be fused here, which rounds differently; the error bound allows for that.
#include "signs_rough.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "vectors.hpp"

namespace densehash {
namespace {

typedef int32_t Ints4 __attribute__((vector_size(16)));

// How many rows and queries are multiplied at once: they stay in registers.
#ifdef __aarch64__
constexpr size_t kRows = 4;
#else
constexpr size_t kRows = 2;
#endif
constexpr size_t kQuads = 4;
// Rows that are fetched ahead.
constexpr size_t kAhead = 8;

// Loaded as one vector: compilers split what memcpy fills.
typedef float Loaded4 __attribute__((vector_size(16), aligned(4), may_alias));
ALWAYS_INLINE Floats4 four_from(const float* at) {
  return *reinterpret_cast<const Loaded4*>(at);
}

ALWAYS_INLINE Floats4 roots(Floats4 four) {
  for (int j = 0; j < 4; ++j) four[j] = std::sqrt(four[j]);
  return four;
}

}  // namespace

Rough::Rough(const SignModel& model, const SignSegment& segment, const float* queries,
             size_t count)
    : metric_(model.metric), width_(model.width),
      vectors_(static_cast<const float*>(segment.vectors)), count_(count),
      stride_((count + 3) / 4 * 4), squares_(stride_),
      limits_(stride_, std::numeric_limits<float>::infinity()), columns_(width_ * stride_),
      products_(kShared * stride_) {
  // More than the rounding error of a product and two squares, as a share of the squares.
  error_ = 4 * static_cast<float>(width_ + 8) * 0x1p-24f;
  for (size_t q = 0; q < count; ++q) {
    squares_[q] = square_of(queries + q * width_);
    for (size_t i = 0; i < width_; ++i) columns_[i * stride_ + q] = queries[q * width_ + i];
  }
}

// Limits of squares, of minus products, and of minus cosines.
void Rough::set_bound(size_t q, float bound) {
  const float limit = metric_ == Metric::l2       ? bound * bound
                      : metric_ == Metric::cosine ? bound - 1
                                                  : bound;
  limits_[q] = std::min(limits_[q], limit);
}

// The nearest row of each of k parts are k rows, so the farthest of them is a bound. It is not the
// smallest bound, but takes a fraction of the time.
void Rough::want_nearest(size_t k) {
  if (k > n_rows_) return;
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (size_t q = 0; q < stride_; q += 4) {
    const Floats4 own = four_from(squares_.data() + q);
    Floats4 farthest = Floats4{} - kInfinite;
    for (size_t part = 0; part < k; ++part) {
      Floats4 nearest = Floats4{} + kInfinite;
      for (size_t i = part; i < n_rows_; i += k) {
        const Floats4 product = four_from(products_.data() + i * stride_ + q);
        const Floats4 squares = own + of_rows_[i], error = error_ * squares;
        Floats4 most = error - product;
        if (metric_ == Metric::l2) most += squares - product;
        if (metric_ == Metric::cosine) {
          const Floats4 lengths = roots(own * of_rows_[i]);
          most = lengths > Floats4{} ? most / lengths : Floats4{} + kInfinite;
        }
        nearest = most < nearest ? most : nearest;
      }
      farthest = nearest > farthest ? nearest : farthest;
    }
    for (size_t j = 0; j < 4; ++j) limits_[q + j] = std::min(limits_[q + j], farthest[j]);
  }
}

void Rough::look_at(const uint32_t* rows, size_t n, size_t n_after) {
  n_rows_ = n;
  for (size_t i = 0; i < n; i += kRows) {
    for (size_t r = i + kAhead; r < std::min(i + kAhead + kRows, n + n_after); ++r)
      for (size_t at = 0; at < width_; at += 16)
        __builtin_prefetch(vectors_ + width_ * rows[r] + at);
    const float* some[kRows];
    for (size_t r = 0; r < kRows; ++r) some[r] = vectors_ + width_ * rows[std::min(i + r, n - 1)];
    const size_t here = std::min(n - i, kRows);
    for (size_t r = 0; r < here; ++r) of_rows_[i + r] = square_of(some[r]);
    size_t quad = 0;
    for (; 4 * (quad + kQuads) <= stride_; quad += kQuads) multiply<kQuads>(some, i, here, quad);
    for (; 4 * quad < stride_; ++quad) multiply<1>(some, i, here, quad);
  }
}

uint32_t Rough::near(size_t i) const {
  const float of_row = of_rows_[i];
  uint32_t found = 0;
  for (size_t q = 0; q < stride_; q += 4) {
    const Floats4 product = four_from(products_.data() + i * stride_ + q);
    const Floats4 limit = four_from(limits_.data() + q), own = four_from(squares_.data() + q);
    const Floats4 squares = own + of_row, error = error_ * squares;
    Ints4 farther;
    if (metric_ == Metric::l2) {
      farther = squares - 2.0f * product - error > limit;
    } else if (metric_ == Metric::ip) {
      farther = -product - error > limit;
    } else {
      farther = -product - error > limit * roots(own * of_row);
    }
    uint64_t halves[2];
    std::memcpy(halves, &farther, sizeof halves);
    if ((halves[0] & halves[1]) == ~uint64_t{0}) continue;  // nearly always
    for (size_t j = 0; j < 4; ++j) found |= uint32_t{farther[j] == 0 && q + j < count_} << (q + j);
  }
  return found;
}

float Rough::square_of(const float* vector) const {
  return static_cast<float>(sums<Metric::ip>(vector, vector, width_).sum);
}

template <size_t QUADS>
void Rough::multiply(const float* const* rows, size_t first, size_t n, size_t quad) {
  Floats4 sums[kRows][QUADS] = {};
  const float* column = columns_.data() + 4 * quad;
  size_t i = 0;
  for (; i + 4 <= width_; i += 4) {
    Floats4 x[kRows];
    for (size_t r = 0; r < kRows; ++r) x[r] = four_from(rows[r] + i);
    for (size_t lane = 0; lane < 4; ++lane, column += stride_)
      for (size_t c = 0; c < QUADS; ++c) {
        const Floats4 y = four_from(column + 4 * c);
        for (size_t r = 0; r < kRows; ++r) sums[r][c] += x[r][lane] * y;
      }
  }
  for (; i < width_; ++i, column += stride_)
    for (size_t c = 0; c < QUADS; ++c)
      for (size_t r = 0; r < kRows; ++r) sums[r][c] += rows[r][i] * four_from(column + 4 * c);
  for (size_t r = 0; r < n; ++r)
    std::memcpy(products_.data() + (first + r) * stride_ + 4 * quad, sums[r], sizeof sums[r]);
}

}  // namespace densehash
