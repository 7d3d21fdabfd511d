// Sketches of signs: of a row x in the group of centre c, two factors are kept, and signs s in
// {-1, 1}^B such that s G has nearly the direction of the residual r = x - c. G, (bits, width), is
// the decoder.
// A bit is 1 if its sign is positive; the first bit is the lowest of its byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "centers.hpp"
#include "checked.hpp"
#include "kernels.hpp"
#include "parallel.hpp"
#include "rerank.hpp"

namespace densehash {

// --- encoding ----------------------------------------------------------------------------------

struct Decoder {
  const int8_t* matrix;  // G: (bits, padded_width), in whole numbers
  const float* steps;    // the value of 1 in each of its rows
  const float* gram;     // G Gᵀ: (bits, bits)
  size_t bits, width;    // bits are a multiple of 8
  size_t padded_width;   // width, padded with zeros to a multiple of 16
  Dots dots;
};

struct Residuals {
  const float* rows;       // (count, width)
  const uint32_t* labels;  // (count,): the group of each row
  const float* centers;    // (groups, width)
  const float* products;   // of the centres with the decoder: (groups, bits)
  size_t count;
};

// The numbers from which the factors of a row are computed.
struct Lengths {
  float residual;  // |r|²
  float decoded;   // |y|², y = s G
  float center;    // <y, c>
  float product;   // <y, r>
};

// out: (count, bits), the products of rows (count, width) with a matrix (width, bits); bits is a
// multiple of 8. Each sum is in the order of features, so that it does not depend on the other
// rows.
void multiply(const float* rows, size_t count, const float* matrix, size_t width, size_t bits,
              float* out);

// Signs by descent: first they are chosen one after the other; then, `sweeps` times, each is
// flipped if that brings s G nearer to r / |r|. G r is a product of bytes. codes: (count, bits /
// 8), lengths: (count,).
void encode_signs(const Decoder& decoder, const Residuals& residuals, size_t sweeps,
                  Control& control, uint8_t* codes, Lengths* lengths);

// The centres near each centre, among which the second group of a row is found.
struct NearCenters {
  const uint32_t* numbers;  // (groups, count)
  const float* products;    // of the centre with each of these: (groups, count)
  const float* squares;     // squared lengths of all centres: (groups,)
  size_t count;
};

// A second group for every row: the nearest by squared distance plus the square of the part of its
// residual that is parallel to the first residual. out: (count,)
void second_groups(const Residuals& residuals, size_t width, const NearCenters& near,
                   Control& control, uint32_t* out);

// --- layout ------------------------------------------------------------------------------------

// Puts entries into blocks, see kernels.hpp; the last block is padded with zeros. codes: (count,
// bits / 8), factors: (count, 2).
void pack_signs(const uint8_t* codes, const int16_t* factors, size_t count, size_t bits,
                uint8_t* blocks);
void unpack_signs(const uint8_t* blocks, size_t count, size_t bits, uint8_t* codes,
                  int16_t* factors);

// --- searching ---------------------------------------------------------------------------------

// The value of a factor of 1.
struct Units {
  float alpha, beta;
};

// What all segments share. Rows and centres are relative to the shift; for the metric ip, queries
// are not.
struct SignModel {
  Metric metric;
  size_t width, bits, n_groups;
  const float* shift;    // (width,)
  const float* centers;  // (groups, width)
  const int8_t* matrix;  // the decoder: (bits, padded_width)
  const float* steps;    // the value of 1 in each of its rows
  size_t padded_width;   // width, padded with zeros to a multiple of 16
  Dots dots;
  std::shared_ptr<const WholeCenters> wholes;
  Units units;
  // For the metric ip: 0, or the length that one more feature gives to all rows, so that rows with
  // large products are near to queries of this length. Groups are visited by these distances.
  float longest;
};

// A second sketch, of the rest that the first leaves: row l of its decoder is
// halves[l] * directions[numbers[l]].
struct SecondModel {
  const float* directions;  // (count, width)
  const uint32_t* numbers;  // (bits,), each below count
  const float* halves;      // (bits,)
  size_t count, bits;       // bits are a multiple of 8
};

enum class Values { none, float32, float16, uint8, int8 };

// The entries of group i are at limits[i]..limits[i + 1]. Numbers in the arrays are checked before
// they are used.
struct SignSegment {
  Range range(size_t group) const { return range_of(limits, group, n_entries); }
  size_t rank(size_t row) const { return rank_of(ranks, row, n_rows); }
  size_t row(size_t entry) const {
    const uint32_t found = read_once(rows + entry);
    if (found >= n_rows) throw std::runtime_error("a row number is beyond the last row");
    return found;
  }

  const uint8_t* blocks;
  const int64_t* limits;
  const uint32_t* rows;  // of each entry
  size_t n_entries, n_rows;
  Values values;
  const void* vectors;     // (rows, width); nullptr: estimates are the distances
  const uint32_t* ranks;   // the place of each row in the order of ties; nullptr: its number
  const uint8_t* allowed;  // by rank, whether a row may be found; nullptr: all may
  // The same by entry, which is faster; nullptr if it was not made. (blocks,), bit e of a block is
  // for entry e.
  const uint32_t* wanted;
  int64_t first;           // added to the numbers of its rows
  const float* scales;     // (rows,), the value of 1 in vectors of int8; nullptr: 1
  const SecondModel* second_model;  // nullptr: there is no second sketch
  const uint8_t* second;            // (rows, bits / 8)
  const uint32_t* second_factors;   // (rows,): two numbers, each the upper half of a float's bits
};

struct SignSettings {
  size_t k;
  size_t probes;  // how many groups are visited at most
  float spread;   // an estimate is wrong by at most this times |q - c| / beta
  // Groups are visited while rank * exp(4 (D - D1) / T) is at most this. rank counts from 1; D, D1
  // and T are squared distances: to the centre of the group, to the first centre, and to the k-th
  // row so far.
  float stop;
  // Which groups have rows that may be found, (groups,); the others are skipped and do not count.
  // nullptr: all have.
  const uint8_t* chosen = nullptr;
};

// Numbers of rows.
struct Chosen {
  const uint32_t* rows;
  size_t count;
};

struct SignEffort {
  int32_t groups, entries, vectors;
};

// The k nearest rows of each query, by (distance, first + rank); infinite and -1 for missing rows.
// queries: (queries, width) of Query, which is float, or the type of all vectors if that is an
// integer. efforts: (queries,).
template <class Query>
void search_signs(const Kernels& kernels, const SignModel& model,
                  const std::vector<SignSegment>& segments, const Query* queries, size_t n_queries,
                  const SignSettings& settings, Control& control, const Ranking& ranking,
                  SignEffort* efforts);

// Marks the groups that have a row that may be found. allowed: by rank, (rows,); out: (groups,).
void mark_groups(const SignSegment& segment, const uint8_t* allowed, size_t n_groups,
                 uint8_t* out);

// Marks the entries of rows that may be found; out has the form of SignSegment::wanted.
void mark_entries(const SignSegment& segment, const uint8_t* allowed, uint32_t* out);

// The k nearest of some rows, all of which are compared: chosen[s] are numbers of rows of segment
// s, which has vectors. The other parameters are as above.
template <class Query>
void compare_rows(const SignModel& model, const std::vector<SignSegment>& segments,
                  const std::vector<Chosen>& chosen, const Query* queries, size_t n_queries,
                  Control& control, const Ranking& ranking, SignEffort* efforts);

}  // namespace densehash
