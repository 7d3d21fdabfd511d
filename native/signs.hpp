// Sketches of signs: a row x in the group of centre c is remembered by signs s in {-1, 1}^B, such
// that s G is near the residual r = x - c, and by two factors. G, (bits, width), is the decoder.
// A bit is 1 where its sign is positive, the first one lowest in its byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel.hpp"

namespace densehash {

// --- encoding ----------------------------------------------------------------------------------

struct Decoder {
  const float* matrix;  // G, transposed: (width, bits)
  const float* gram;    // G Gᵀ: (bits, bits)
  size_t bits, width;   // bits are a multiple of 8
};

struct Residuals {
  const float* rows;       // (count, width)
  const float* centers;    // (groups, width); nullptr: rows are residuals
  const uint32_t* labels;  // (count,): the group of each row; each below n_groups
  size_t count, n_groups;
};

// What is left to compute factors of, for each row.
struct Lengths {
  float residual;   // |r|²
  float decoded;    // |y|², y = s G
  float agreement;  // <y, r>
};

// out: (count, bits), the products of rows (count, width) with a matrix (width, bits). Each sum
// goes in the order of the width, so that it does not depend on the rows beside.
void multiply(const float* rows, size_t count, const Decoder& decoder, Control& control,
              float* out);

// Signs by descent: first one after the other, then `sweeps` times each is flipped if that brings
// s G nearer to r. codes: (count, bits / 8), lengths: (count,).
void encode_signs(const Decoder& decoder, const Residuals& residuals, size_t sweeps,
                  Control& control, uint8_t* codes, Lengths* lengths);

}  // namespace densehash
