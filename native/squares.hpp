// Squared distances between vectors of bytes, for machines that have instructions for them.
// Nothing of the standard library here: squares_dotprod.cpp and squares_avx2.cpp are compiled with
// flags of their own, and the linker must not merge their code into others'.
#pragma once

#include <cstddef>
#include <cstdint>

namespace densehash {

// What distances are made of: the squared distance, or the inner product and the squared length
// of the vector.
struct Sums {
  double sum, length;
};

// The widest vectors whose squared distances fit 32 bits.
constexpr size_t kMostSquares = 65536;

// For the rows at these positions; width is at most kMostSquares.
using Squares = void (*)(const uint8_t* query, const uint8_t* rows, size_t width,
                         const size_t* positions, size_t count, Sums* sums);

void squares_dotprod(const uint8_t* query, const uint8_t* rows, size_t width,
                     const size_t* positions, size_t count, Sums* sums);
void squares_avx2(const uint8_t* query, const uint8_t* rows, size_t width, const size_t* positions,
                  size_t count, Sums* sums);

// Products of vectors (n_vectors, width) with the rows of a matrix (count, width), sums:
// (n_vectors, count). width is a multiple of 16 and count of 8; numbers are -127 to 127, so that
// sums of up to 130,000 fit.
using Dots = void (*)(const int8_t* vectors, size_t n_vectors, const int8_t* matrix, size_t width,
                      size_t count, int32_t* sums);

void dots_dotprod(const int8_t* vectors, size_t n_vectors, const int8_t* matrix, size_t width,
                  size_t count, int32_t* sums);
void dots_avx2(const int8_t* vectors, size_t n_vectors, const int8_t* matrix, size_t width,
               size_t count, int32_t* sums);

}  // namespace densehash
