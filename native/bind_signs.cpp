// densehash.index.sketches
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <numeric>

#include "binding.hpp"
#include "signs.hpp"
#include "signs_ids.hpp"
#include "whole.hpp"

namespace densehash {
namespace {

using Matrix = Input<float, 2>;

void expect(bool is_so, const char* message) {
  if (!is_so) throw std::invalid_argument(message);
}

// The matrix with rows padded to a multiple of 16 bytes.
std::vector<int8_t> with_zeros(const Input<int8_t, 2>& matrix) {
  const size_t width = matrix.shape(1), padded = padded_width_for(width);
  std::vector<int8_t> to(matrix.shape(0) * padded);
  for (size_t row = 0; row < matrix.shape(0); ++row)
    std::copy_n(matrix.data() + row * width, width, to.data() + row * padded);
  return to;
}

nb::tuple encode_signs_of(const Matrix& rows, const Input<uint32_t, 1>& labels,
                          const Matrix& centers, const Matrix& products,
                          const Input<int8_t, 2>& matrix, const Input<float, 1>& steps,
                          const Matrix& gram, size_t sweeps, size_t n_threads) {
  const size_t n = rows.shape(0), width = rows.shape(1), bits = gram.shape(0);
  const size_t n_groups = centers.shape(0);
  expect(bits % 8 == 0 && gram.shape(1) == bits, "the Gram matrix has a wrong shape");
  expect(matrix.shape(0) == bits && matrix.shape(1) == width && steps.shape(0) == bits,
         "the matrix has a wrong shape");
  expect(labels.shape(0) == n, "one label a row");
  expect(centers.shape(1) == width, "the centers have a wrong shape");
  expect(products.shape(0) == n_groups && products.shape(1) == bits,
         "the products have a wrong shape");
  for (size_t i = 0; i < n; ++i)
    expect(labels.data()[i] < n_groups, "a label is beyond the last group");
  const std::vector<int8_t> padded = with_zeros(matrix);
  const Decoder decoder{padded.data(), steps.data(), gram.data(),
                        bits,          width,        padded_width_for(width),
                        kernels_named("").dots};
  const Residuals residuals{rows.data(), labels.data(), centers.data(), products.data(), n};
  const Output<uint8_t> codes(Numpy::empty, n, bits / 8);
  static_assert(sizeof(Lengths) == 4 * sizeof(float));
  const Output<float> lengths(Numpy::empty, n, size_t{4});
  without_lock(n_threads, [&](Control& control) {
    encode_signs(decoder, residuals, sweeps, control, codes.data,
                 reinterpret_cast<Lengths*>(lengths.data));
  });
  return nb::make_tuple(codes.array, lengths.array);
}

nb::object second_groups_of(const Matrix& rows, const Input<uint32_t, 1>& labels,
                            const Matrix& centers, const Input<uint32_t, 2>& near,
                            const Matrix& products, const Input<float, 1>& squares,
                            size_t n_threads) {
  const size_t n = rows.shape(0), width = rows.shape(1), n_groups = centers.shape(0);
  expect(labels.shape(0) == n, "one label a row");
  expect(centers.shape(1) == width && squares.shape(0) == n_groups,
         "the centers have a wrong shape");
  expect(near.shape(0) == n_groups && near.shape(1) > 0 && products.shape(0) == n_groups &&
             products.shape(1) == near.shape(1),
         "the near centers have a wrong shape");
  for (size_t i = 0; i < n; ++i)
    expect(labels.data()[i] < n_groups, "a label is beyond the last group");
  for (size_t i = 0; i < near.size(); ++i)
    expect(near.data()[i] < n_groups, "a near center is beyond the last group");
  const Residuals residuals{rows.data(), labels.data(), centers.data(), nullptr, n};
  const NearCenters centers_near{near.data(), products.data(), squares.data(), near.shape(1)};
  const Output<uint32_t> out(Numpy::empty, n);
  without_lock(n_threads, [&](Control& control) {
    second_groups(residuals, width, centers_near, control, out.data);
  });
  return out.array;
}

// Keeps the centres alive.
class Centers {
 public:
  explicit Centers(const Matrix& centers)
      : centers_(centers),
        wholes_(centers.data(), centers.shape(0), centers.shape(1), Metric::l2) {
    expect(centers.shape(0) > 0, "there is no center");
  }

  nb::object nearest(const Matrix& rows, size_t n_threads) const {
    expect(rows.shape(1) == centers_.shape(1), "the rows have a wrong width");
    const Output<uint32_t> out(Numpy::empty, rows.shape(0));
    without_lock(n_threads, [&](Control& control) {
      nearest_centers(wholes_, centers_.data(), centers_.shape(1), rows.data(), rows.shape(0),
                      control, out.data);
    });
    return out.array;
  }

 private:
  Matrix centers_;
  WholeCenters wholes_;
};

nb::object multiply_of(const Matrix& rows, const Matrix& matrix) {
  expect(rows.shape(1) == matrix.shape(0), "the rows do not fit the matrix");
  expect(matrix.shape(1) % 8 == 0, "columns are a multiple of 8");
  const Output<float> out(Numpy::empty, rows.shape(0), matrix.shape(1));
  multiply(rows.data(), rows.shape(0), matrix.data(), matrix.shape(0), matrix.shape(1), out.data);
  return out.array;
}

nb::object pack_signs_of(const Bytes& codes, const Input<int16_t, 2>& factors) {
  const size_t n = codes.shape(0), bits = 8 * codes.shape(1);
  expect(factors.shape(0) == n && factors.shape(1) == 2, "the factors have a wrong shape");
  const Output<uint8_t> blocks(Numpy::empty, (n + kBlock - 1) / kBlock, block_bytes(bits));
  pack_signs(codes.data(), factors.data(), n, bits, blocks.data);
  return blocks.array;
}

size_t bits_of(const Bytes& blocks) {
  const size_t bytes = blocks.shape(1);
  expect(bytes > sizeof(BlockFactors) && (bytes - sizeof(BlockFactors)) % kBlock == 0,
         "the blocks have a wrong shape");
  return (bytes - sizeof(BlockFactors)) / 4;
}

nb::tuple unpack_signs_of(const Bytes& blocks, size_t count) {
  const size_t bits = bits_of(blocks);
  expect(count <= blocks.shape(0) * kBlock, "there are not so many entries");
  const Output<uint8_t> codes(Numpy::empty, count, bits / 8);
  const Output<int16_t> factors(Numpy::empty, count, size_t{2});
  unpack_signs(blocks.data(), count, bits, codes.data, factors.data);
  return nb::make_tuple(codes.array, factors.array);
}

// Summed in lanes, which is fast.
float squared_length(const float* numbers, size_t count) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) lanes[j] += numbers[i + j] * numbers[i + j];
  float sum = 0;
  for (; i < count; ++i) sum += numbers[i] * numbers[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Keeps the arrays that it searches alive; their shapes were checked when they were given.
class Signs {
 public:
  using Ranks = std::optional<Input<uint32_t, 1>>;
  using Masks = std::vector<Input<uint8_t, 1>>;        // of rows, one for each segment
  using EntryMasks = std::vector<Input<uint32_t, 1>>;  // of entries, one bit for each
  using AnyIds = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

  Signs(const std::string& metric, const Input<float, 1>& shift, const Matrix& centers,
        const Input<int8_t, 2>& matrix, const Input<float, 1>& steps, float alpha, float beta)
      : shift_(shift), steps_(steps), centers_(centers) {
    model_.metric = metric_named(metric);
    model_.width = centers.shape(1);
    model_.n_groups = centers.shape(0);
    model_.shift = shift.data();
    model_.centers = centers.data();
    model_.steps = steps.data();
    model_.units = {alpha, beta};
    model_.bits = matrix.shape(0);
    expect(shift.shape(0) == model_.width && matrix.shape(1) == model_.width,
           "the widths do not agree");
    expect(model_.n_groups > 0, "there is no group");
    expect(model_.bits > 0 && model_.bits % 8 == 0 && steps.shape(0) == model_.bits,
           "the matrix has a wrong shape");
    model_.padded_width = padded_width_for(model_.width);
    if (model_.padded_width == model_.width) {
      kept_.push_back(nb::cast(matrix));
      model_.matrix = matrix.data();
    } else {
      matrix_ = with_zeros(matrix);
      model_.matrix = matrix_.data();
    }
    model_.wholes = std::make_shared<const WholeCenters>(centers.data(), model_.n_groups,
                                                         model_.width, model_.metric);
  }

  // If groups were made for products; see SignModel::longest.
  void set_lengths(const Input<float, 1>& squares, float longest) {
    expect(model_.metric == Metric::ip, "lengths are for products");
    expect(squares.shape(0) == model_.n_groups, "one length a center");
    auto wholes = std::make_shared<WholeCenters>(*model_.wholes);
    for (const WholeCenters::Region& region : wholes->regions)
      for (size_t place = region.first; place < region.first + region.count; ++place)
        wholes->centers.squares[place] = squares.data()[wholes->groups[place]];
    model_.wholes = std::move(wholes);
    model_.longest = longest;
  }

  // Call it before segments with a second sketch are added.
  void set_second(const Matrix& directions, const Input<uint32_t, 1>& numbers,
                  const Input<float, 1>& halves) {
    expect(segments_.empty(), "the second sketch comes before segments");
    expect(directions.shape(1) == model_.width, "the directions have a wrong shape");
    expect(numbers.shape(0) > 0 && numbers.shape(0) % 8 == 0 &&
               halves.shape(0) == numbers.shape(0),
           "the bits of a second sketch have a wrong shape");
    for (size_t i = 0; i < numbers.shape(0); ++i)
      expect(numbers.data()[i] < directions.shape(0), "a number is beyond the last direction");
    second_ = {directions.data(), numbers.data(), halves.data(), directions.shape(0),
               numbers.shape(0)};
    kept_.push_back(nb::make_tuple(directions, numbers, halves));
  }

  void add(const Bytes& blocks, const Positions& limits, const Input<uint32_t, 1>& rows,
           const std::optional<Vectors>& vectors, const Ranks& ranks, size_t n_rows,
           int64_t first, const std::optional<Input<float, 1>>& scales,
           const std::optional<Bytes>& second,
           const std::optional<Input<uint32_t, 1>>& second_factors) {
    SignSegment segment{};
    segment.blocks = blocks.data();
    segment.limits = limits.data();
    segment.rows = rows.data();
    segment.n_entries = rows.shape(0);
    segment.n_rows = n_rows;
    segment.values = Values::none;
    segment.first = first;
    expect(bits_of(blocks) == model_.bits, "the blocks have a wrong shape");
    expect(blocks.shape(0) * kBlock >= segment.n_entries, "there are not so many blocks");
    expect(limits.shape(0) == model_.n_groups + 1, "the limits have a wrong shape");
    if (vectors) {
      expect(vectors->shape(0) == n_rows && vectors->shape(1) == model_.width,
             "the vectors have a wrong shape");
      segment.values = values_of(vectors->dtype());
      segment.vectors = vectors->data();
    }
    if (ranks) {
      expect(ranks->shape(0) == n_rows, "the ranks have a wrong shape");
      segment.ranks = ranks->data();
    }
    if (scales) {
      expect(segment.values == Values::int8, "scales are of vectors of int8");
      expect(scales->shape(0) == n_rows, "the scales have a wrong shape");
      segment.scales = scales->data();
    }
    if (second) {
      expect(second_.bits > 0 && second_factors.has_value(), "the second sketch is not whole");
      expect(second->shape(0) == n_rows && 8 * second->shape(1) == second_.bits,
             "the second sketch has a wrong shape");
      expect(second_factors->shape(0) == n_rows,
             "the factors of the second sketch have a wrong shape");
      expect(segment.n_entries == n_rows, "rows with a second sketch lie in one group");
      segment.second_model = &second_;
      segment.second = second->data();
      segment.second_factors = second_factors->data();
    }
    segments_.push_back(segment);
    kept_.push_back(nb::make_tuple(blocks, limits, rows, vectors, ranks));
    kept_.push_back(nb::make_tuple(scales, second, second_factors));
  }

  nb::tuple search(const Vectors& queries, size_t k, size_t probes, float spread, float stop,
                   const std::optional<Masks>& allowed, size_t n_threads, const std::string& simd,
                   const std::optional<Input<uint8_t, 1>>& chosen,
                   const std::optional<EntryMasks>& entries) const {
    expect(queries.shape(1) == model_.width, "the queries have a wrong width");
    expect(k > 0 && probes > 0, "k and probes are at least 1");
    const Answers found(queries.shape(0), k);
    look(kernels_named(simd), with_masks(allowed, entries), queries,
         with_groups({k, probes, spread, stop}, chosen), n_threads, found);
    return nb::make_tuple(found.distances.array, found.positions.array, found.efforts.array);
  }

  // Which groups have a row that may be found: (groups,) of 0 and 1.
  nb::object groups_of(const Masks& allowed) const {
    expect(allowed.size() == segments_.size(), "one mask a segment");
    const Output<uint8_t> out(Numpy::empty, model_.n_groups);
    std::fill_n(out.data, model_.n_groups, uint8_t{0});
    for (size_t s = 0; s < segments_.size(); ++s) {
      const SignSegment& segment = segments_[s];
      expect(allowed[s].shape(0) == segment.n_rows, "a mask has a wrong shape");
      mark_groups(segment, allowed[s].data(), model_.n_groups, out.data);
    }
    return out.array;
  }

  // For each segment, which entries may be found: (blocks,), one bit for each entry.
  nb::list entries_of(const Masks& allowed) const {
    expect(allowed.size() == segments_.size(), "one mask a segment");
    nb::list found;
    for (size_t s = 0; s < segments_.size(); ++s) {
      const SignSegment& segment = segments_[s];
      expect(allowed[s].shape(0) == segment.n_rows, "a mask has a wrong shape");
      const Output<uint32_t> out(Numpy::empty, n_blocks(segment));
      mark_entries(segment, allowed[s].data(), out.data);
      found.append(out.array);
    }
    return found;
  }

  // Compares all given rows; for each segment, their numbers in ascending order.
  nb::tuple compare(const Vectors& queries, size_t k,
                    const std::vector<Input<uint32_t, 1>>& rows, size_t n_threads) const {
    expect(queries.shape(1) == model_.width, "the queries have a wrong width");
    expect(k > 0 && rows.size() == segments_.size(), "one list of rows a segment");
    std::vector<Chosen> chosen;
    for (size_t s = 0; s < rows.size(); ++s) {
      expect(segments_[s].values != Values::none, "rows without vectors cannot be compared");
      for (size_t i = 0; i < rows[s].size(); ++i)
        expect(rows[s].data()[i] < segments_[s].n_rows, "a row is beyond the last");
      chosen.push_back({rows[s].data(), rows[s].size()});
    }
    const Answers found(queries.shape(0), k);
    compare_all(queries, segments_, chosen, n_threads, found);
    return nb::make_tuple(found.distances.array, found.positions.array, found.efforts.array);
  }

  // The ids of the rows of each segment, as ids_of() takes them, which plain() returns.
  void set_ids(const std::vector<AnyIds>& ids) {
    expect(ids.size() == segments_.size(), "one array of ids a segment");
    ids_ = {};
    for (size_t s = 0; s < ids.size(); ++s) {
      expect(ids[s].ndim() == ids[0].ndim(), "ids are all numbers or all strings");
      expect(segments_[s].first == static_cast<int64_t>(ids_.n_rows()),
             "positions do not count over all segments");
      ids_.add(ids_of(ids[s], segments_[s].n_rows));
      kept_.push_back(nb::cast(ids[s]));
    }
  }

  // Whether rows in the order of their positions are in the order of their ids.
  bool ids_rise() const { return ids_.rise(); }

  // A whole search without options other than a filter, as fast as possible for one query: returns
  // ids instead of positions. Returns None if the search is not that simple: queries that are not
  // finite or have another type, more neighbours than rows, too few rows in the visited groups, or a
  // row after the k-th that is equally near. A filter is masks of the n_allowed rows, the groups
  // that have any of them and, optionally, what entries_of() returns for the masks.
  nb::object plain(const Vectors& queries, size_t k, size_t probes, float spread, float stop,
                   size_t n_threads, size_t n_allowed, const std::optional<Masks>& allowed,
                   const std::optional<Input<uint8_t, 1>>& chosen,
                   const std::optional<EntryMasks>& entries) const {
    const size_t n = queries.shape(0);
    if (!is_plain(queries, k) || (!ids_.rise() && n > kFewQueries)) return nb::none();
    // One row more shows whether another row is equally near as the last.
    const Answers found(n, ids_.rise() ? k : k + 1);
    look(kernels_named(""), with_masks(allowed, entries), queries,
         with_groups({found.k, probes, spread, stop}, chosen), n_threads, found);
    return named(found, n, k, n_allowed, ids_);
  }

  // The same, if a filter leaves so few rows that all of them are compared: vectors, scales and ids
  // are arrays of only these rows, in the order of ids.
  nb::object among(const Vectors& queries, size_t k, const Vectors& vectors,
                   const std::optional<Input<float, 1>>& scales, const AnyIds& ids,
                   size_t n_threads) const {
    SignSegment few = segments_.at(0);
    const size_t n = queries.shape(0), n_rows = vectors.shape(0);
    expect(vectors.shape(1) == model_.width && values_of(vectors.dtype()) == few.values,
           "the vectors are not those of the segments");
    expect(scales.has_value() == (few.scales != nullptr) &&
               (!scales || scales->shape(0) == n_rows),
           "one scale a row");
    AllIds names;
    names.add(ids_of(ids, n_rows));
    if (!is_plain(queries, k)) return nb::none();
    few.vectors = vectors.data();
    few.scales = scales ? scales->data() : nullptr;
    few.n_rows = n_rows;
    few.first = 0;
    std::vector<uint32_t> rows(n_rows);
    std::iota(rows.begin(), rows.end(), 0u);
    const Answers found(n, k);
    compare_all(queries, {few}, {{rows.data(), n_rows}}, n_threads, found);
    return named(found, n, k, n_rows, names);
  }

 private:
  // The most queries of a call if ids do not rise: if one of them is not that simple, all of them
  // are searched again. In larger calls, the overhead of the longer way matters little.
  static constexpr size_t kFewQueries = 64;

  struct Answers {
    Answers(size_t n, size_t k)
        : distances(Numpy::empty, n, k), positions(Numpy::empty, n, k),
          efforts(Numpy::empty, n, size_t{3}), k(k) {}
    Ranking ranking() const { return {distances.data, positions.data, k}; }
    // The first few rows of each query.
    Answers first(size_t n, size_t few) const {
      Answers to(n, few);
      for (size_t q = 0; q < n; ++q) {
        std::copy_n(distances.data + q * k, few, to.distances.data + q * few);
        std::copy_n(positions.data + q * k, few, to.positions.data + q * few);
      }
      to.efforts = efforts;
      return to;
    }
    SignEffort* effort() const {
      static_assert(sizeof(SignEffort) == 3 * sizeof(int32_t));
      return reinterpret_cast<SignEffort*>(efforts.data);
    }
    Output<float> distances;
    Output<int64_t> positions;
    Output<int32_t> efforts;
    size_t k;
  };

  void look(const Kernels& kernels, const std::vector<SignSegment>& segments,
            const Vectors& queries, SignSettings settings, size_t n_threads,
            const Answers& found) const {
    SignModel model = model_;
    model.dots = kernels.dots;
    settings.probes = std::min(settings.probes, model_.n_groups);
    without_lock(n_threads, [&](Control& control) {
      with_type(queries, [&](const auto* of_query) {
        search_signs(kernels, model, segments, of_query, queries.shape(0), settings, control,
                     found.ranking(), found.effort());
      });
    });
  }

  // Whether plain() and among() can answer these queries.
  bool is_plain(const Vectors& queries, size_t k) const {
    return queries.shape(1) == model_.width && queries.shape(0) > 0 && k > 0 &&
           k <= ids_.n_rows() && can_take(queries);
  }

  static nb::object string_of(const AllIds& ids, int64_t position) {
    const Text text = ids.text(position);
    PyObject* const found =
        PyUnicode_DecodeUTF8(text.bytes, static_cast<Py_ssize_t>(text.size), nullptr);
    if (found == nullptr) throw nb::python_error();
    return nb::steal(found);
  }

  // The k nearest rows with ids in place of positions: int64, or strings in an array of objects.
  // None if fewer rows were found than possible, or if the row after the k-th is equally near and
  // may have a smaller id.
  static nb::object named(const Answers& found, size_t n, size_t k, size_t n_allowed,
                          const AllIds& ids) {
    const size_t n_found = std::min(k, n_allowed);
    for (size_t q = 0; q < n; ++q) {
      int64_t* const positions = found.positions.data + q * found.k;
      const float* const distances = found.distances.data + q * found.k;
      if (n_found > 0 && positions[n_found - 1] < 0) return nb::none();
      if (ids.rise()) continue;
      if (positions[k] >= 0 && distances[k] == distances[k - 1]) return nb::none();
      for (size_t i = 0, end; i < n_found; i = end) {
        for (end = i + 1; end < n_found && distances[end] == distances[i];) ++end;
        // By a heap, which stays within its bounds even if ids in a mapped file change meanwhile.
        std::partial_sort(positions + i, positions + end, positions + end,
                          [&](int64_t x, int64_t y) { return ids.is_before(x, y); });
      }
    }
    const Answers first = found.k == k ? found : found.first(n, k);
    if (ids.are_strings()) {
      const Objects names(n, k);
      for (size_t q = 0; q < n; ++q)
        for (size_t i = 0; i < n_found; ++i)
          names.set(q * k + i, string_of(ids, first.positions.data[q * k + i]));
      return nb::make_tuple(names.array, first.distances.array, first.efforts.array);
    }
    for (size_t q = 0; q < n; ++q)
      for (size_t i = 0; i < n_found; ++i) {
        int64_t& position = first.positions.data[q * k + i];
        position = ids.number(position);
      }
    return nb::make_tuple(first.positions.array, first.distances.array, first.efforts.array);
  }

  void compare_all(const Vectors& queries, const std::vector<SignSegment>& segments,
                   const std::vector<Chosen>& chosen, size_t n_threads,
                   const Answers& found) const {
    without_lock(n_threads, [&](Control& control) {
      with_type(queries, [&](const auto* of_query) {
        compare_rows(model_, segments, chosen, of_query, queries.shape(0), control,
                     found.ranking(), found.effort());
      });
    });
  }

  // The segments, with masks of the rows that may be found, and of their entries.
  std::vector<SignSegment> with_masks(const std::optional<Masks>& allowed,
                                      const std::optional<EntryMasks>& entries) const {
    std::vector<SignSegment> segments = segments_;
    expect(!allowed || allowed->size() == segments.size(), "one mask a segment");
    expect(!entries || entries->size() == segments.size(), "one mask of entries a segment");
    for (size_t s = 0; s < segments.size(); ++s) {
      if (allowed) {
        expect((*allowed)[s].shape(0) == segments[s].n_rows, "a mask has a wrong shape");
        segments[s].allowed = (*allowed)[s].data();
      }
      if (entries) {
        expect((*entries)[s].shape(0) == n_blocks(segments[s]), "not one mask a block");
        segments[s].wanted = (*entries)[s].data();
      }
    }
    return segments;
  }

  SignSettings with_groups(SignSettings settings,
                           const std::optional<Input<uint8_t, 1>>& chosen) const {
    if (!chosen) return settings;
    expect(chosen->shape(0) == model_.n_groups, "the chosen groups have a wrong shape");
    settings.chosen = chosen->data();
    return settings;
  }

  template <class Run>
  static void with_type(const Vectors& queries, Run&& run) {
    switch (values_of(queries.dtype())) {
      case Values::float32: return run(static_cast<const float*>(queries.data()));
      case Values::uint8: return run(static_cast<const uint8_t*>(queries.data()));
      case Values::int8: return run(static_cast<const int8_t*>(queries.data()));
      default: throw std::invalid_argument("queries are float32, uint8 or int8");
    }
  }

  // Whether queries are float32 with a finite sum of squares, or the integer type of the vectors.
  bool can_take(const Vectors& queries) const {
    const SignSegment& segment = segments_[0];
    if (queries.dtype() == nb::dtype<uint8_t>()) return segment.values == Values::uint8;
    if (queries.dtype() == nb::dtype<int8_t>())
      return segment.values == Values::int8 && segment.scales == nullptr;
    if (queries.dtype() != nb::dtype<float>()) return false;
    constexpr float kMostSquares = 1e36f;  // NaN is not less than any number
    const float* const numbers = static_cast<const float*>(queries.data());
    return squared_length(numbers, queries.size()) < kMostSquares;
  }

  // From int64 (rows,), or the bytes of strings (rows, width).
  static Ids ids_of(const AnyIds& array, size_t n_rows) {
    const bool are_numbers = array.ndim() == 1 && array.dtype() == nb::dtype<int64_t>();
    const bool are_strings = array.ndim() == 2 && array.dtype() == nb::dtype<uint8_t>();
    expect(are_numbers || (are_strings && array.shape(1) > 0), "ids are numbers or strings");
    expect(array.shape(0) == n_rows, "one id a row");
    if (are_numbers) return {static_cast<const int64_t*>(array.data()), nullptr, 0, n_rows};
    return {nullptr, static_cast<const uint8_t*>(array.data()), array.shape(1), n_rows};
  }

  static size_t n_blocks(const SignSegment& segment) {
    return (segment.n_entries + kBlock - 1) / kBlock;
  }

  static Values values_of(nb::dlpack::dtype dtype) {
    if (dtype == nb::dtype<float>()) return Values::float32;
    if (dtype == nb::dtype<uint8_t>()) return Values::uint8;
    if (dtype == nb::dtype<int8_t>()) return Values::int8;
    if (dtype.bits == 16 && dtype.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float))
      return Values::float16;
    throw std::invalid_argument("vectors are float32, float16, uint8 or int8");
  }

  Input<float, 1> shift_, steps_;
  Matrix centers_;
  std::vector<int8_t> matrix_;  // if it has to be padded
  SignModel model_{};
  SecondModel second_{};
  std::vector<SignSegment> segments_;
  AllIds ids_;
  std::vector<nb::object> kept_;
};

}  // namespace

void bind_signs(nb::module_& module) {
  module.def("encode_signs", encode_signs_of, "rows"_a, "labels"_a, "centers"_a, "products"_a,
             "matrix"_a, "steps"_a, "gram"_a, "sweeps"_a, "n_threads"_a);
  module.def("second_groups", second_groups_of, "rows"_a, "labels"_a, "centers"_a, "near"_a,
             "products"_a, "squares"_a, "n_threads"_a);
  module.def("multiply", multiply_of, "rows"_a, "matrix"_a);
  module.def("pack_signs", pack_signs_of, "codes"_a, "factors"_a);
  module.def("unpack_signs", unpack_signs_of, "blocks"_a, "count"_a);
  nb::class_<Centers>(module, "Centers")
      .def(nb::init<const Matrix&>(), "centers"_a)
      .def("nearest", &Centers::nearest, "rows"_a, "n_threads"_a);
  nb::class_<Signs>(module, "Signs")
      .def(nb::init<const std::string&, const Input<float, 1>&, const Matrix&,
                    const Input<int8_t, 2>&, const Input<float, 1>&, float, float>(),
           "metric"_a, "shift"_a, "centers"_a, "matrix"_a, "steps"_a, "alpha"_a, "beta"_a)
      .def("set_lengths", &Signs::set_lengths, "squares"_a, "longest"_a)
      .def("set_second", &Signs::set_second, "directions"_a, "numbers"_a, "halves"_a)
      .def("add", &Signs::add, "blocks"_a, "limits"_a, "rows"_a, "vectors"_a.none(),
           "ranks"_a.none(), "n_rows"_a, "first"_a, "scales"_a.none() = nb::none(),
           "second"_a.none() = nb::none(), "second_factors"_a.none() = nb::none())
      .def("search", &Signs::search, "queries"_a, "k"_a, "probes"_a, "spread"_a,
           "stop"_a, "allowed"_a.none(), "n_threads"_a, "simd"_a,
           "chosen"_a.none() = nb::none(), "entries"_a.none() = nb::none())
      .def("groups_of", &Signs::groups_of, "allowed"_a)
      .def("entries_of", &Signs::entries_of, "allowed"_a)
      .def("compare", &Signs::compare, "queries"_a, "k"_a, "rows"_a, "n_threads"_a)
      .def("set_ids", &Signs::set_ids, "ids"_a)
      .def_prop_ro("ids_rise", &Signs::ids_rise)
      .def("plain", &Signs::plain, "queries"_a, "k"_a, "probes"_a, "spread"_a, "stop"_a,
           "n_threads"_a, "n_allowed"_a, "allowed"_a.none(), "chosen"_a.none(),
           "entries"_a.none())
      .def("among", &Signs::among, "queries"_a, "k"_a, "vectors"_a, "scales"_a.none(), "ids"_a,
           "n_threads"_a);
}

}  // namespace densehash
