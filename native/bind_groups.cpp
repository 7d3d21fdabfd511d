// densehash.index.native
#include <nanobind/stl/optional.h>

#include "binding.hpp"
#include "groups.hpp"

namespace densehash {
namespace {

using Ranks = std::optional<Input<uint32_t, 1>>;
using Allowed = std::optional<Input<uint8_t, 1>>;

// The type of an array's numbers.
template <class Value>
nb::dlpack::dtype dtype_of(const Value*) {
  return nb::dtype<Value>();
}
nb::dlpack::dtype dtype_of(const Half*) {
  return {static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
}

template <class Array>
auto data_or_null(const Array& array) {
  return array ? array->data() : nullptr;
}

nb::object nearest_groups_of(const Input<float, 2>& scores, size_t p, size_t n_threads) {
  const size_t q = scores.shape(0), g = scores.shape(1);
  const Output<int32_t> groups(Numpy::empty, q, p);
  without_lock(n_threads, [&](Control& control) {
    nearest_groups(scores.data(), q, g, p, control, groups.data);
  });
  return groups.array;
}

nb::tuple top_k_in_groups_of(const Bytes& queries, const Bytes& codes, const Positions& limits,
                             const Input<int32_t, 2>& probes, const Ranks& ranks,
                             const Allowed& allowed, size_t k, bool ordered, size_t n_threads,
                             const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries);
  const GroupedCodes groups{view(codes), limits.data(), limits.shape(0) - 1, data_or_null(ranks),
                            data_or_null(allowed)};
  const Output<int32_t> near(Numpy::empty, q.count, k);
  const Output<int64_t> positions(Numpy::empty, q.count, k);
  without_lock(n_threads, [&](Control& control) {
    top_k_in_groups(kernels, q, groups, probes.data(), probes.shape(1), k, ordered, control,
                    near.data, positions.data);
  });
  return nb::make_tuple(near.array, positions.array);
}

// Runs work(control, ranking) and returns what it wrote.
template <class Work>
nb::tuple ranked(size_t n_queries, size_t k, size_t n_threads, Work&& work) {
  const Output<float> near(Numpy::empty, n_queries, k);
  const Output<int64_t> positions(Numpy::empty, n_queries, k);
  without_lock(n_threads, [&](Control& control) {
    work(control, Ranking{near.data, positions.data, k});
  });
  return nb::make_tuple(near.array, positions.array);
}

nb::tuple top_products_in_groups_of(const Bytes& queries, const Input<float, 1>& factors,
                                    const Bytes& codes, const Input<float, 1>& lengths, float zero,
                                    const Positions& limits, const Input<int32_t, 2>& probes,
                                    const Ranks& ranks, const Allowed& allowed, size_t k,
                                    bool ordered, size_t n_threads, const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries);
  const GroupedCodes groups{view(codes), limits.data(), limits.shape(0) - 1, data_or_null(ranks),
                            data_or_null(allowed)};
  const Products products{lengths.data(), factors.data(), zero};
  return ranked(q.count, k, n_threads, [&](Control& control, const Ranking& ranking) {
    top_products_in_groups(kernels, q, groups, products, probes.data(), probes.shape(1), k,
                           ordered, control, ranking.distances, ranking.positions);
  });
}

nb::tuple rerank_of(const Vectors& queries, const Vectors& vectors,
                    const Input<int64_t, 2>& positions, const Ranks& ranks, size_t k,
                    const std::string& metric, size_t n_threads, const std::string& simd) {
  const Metric by = metric_named(metric);
  const Squares squares = kernels_named(simd).squares;
  const Candidates candidates{positions.data(), positions.shape(0), positions.shape(1),
                              vectors.shape(0), data_or_null(ranks)};
  return ranked(candidates.n_queries, k, n_threads, [&](Control& control, const Ranking& ranking) {
    const auto run = [&](auto* of_query, auto* of_row) {
      if (queries.dtype() != dtype_of(of_query)) return false;
      if (vectors.dtype() != dtype_of(of_row)) return false;
      rerank(by, static_cast<decltype(of_query)>(queries.data()),
             static_cast<decltype(of_row)>(vectors.data()), vectors.shape(1), candidates, squares,
             control, ranking);
      return true;
    };
    const float* floats = nullptr;
    const uint8_t* bytes = nullptr;
    const int8_t* signed_bytes = nullptr;
    const Half* halves = nullptr;
    if (!(run(floats, floats) || run(floats, halves) || run(floats, bytes) ||
          run(floats, signed_bytes) || run(bytes, bytes) || run(signed_bytes, signed_bytes)))
      throw std::invalid_argument("no way to compare vectors of these types");
  });
}

nb::tuple rerank_codes_of(const Input<float, 2>& margins, const Bytes& codes,
                          const Input<int64_t, 2>& positions, const Ranks& ranks, size_t k,
                          size_t n_threads) {
  const Codes c = view(codes);
  const Candidates candidates{positions.data(), positions.shape(0), positions.shape(1), c.count,
                              data_or_null(ranks)};
  return ranked(candidates.n_queries, k, n_threads, [&](Control& control, const Ranking& ranking) {
    rerank_codes(margins.data(), margins.shape(1), c, candidates, control, ranking);
  });
}

}  // namespace

void bind_groups(nb::module_& module) {
  module.def("nearest_groups", nearest_groups_of, "scores"_a, "p"_a, "n_threads"_a);
  module.def("top_k_in_groups", top_k_in_groups_of, "queries"_a, "codes"_a, "limits"_a,
             "probes"_a, "ranks"_a.none(), "allowed"_a.none(), "k"_a, "ordered"_a, "n_threads"_a,
             "simd"_a);
  module.def("top_products_in_groups", top_products_in_groups_of, "queries"_a, "factors"_a,
             "codes"_a, "lengths"_a, "zero"_a, "limits"_a, "probes"_a, "ranks"_a.none(),
             "allowed"_a.none(), "k"_a, "ordered"_a, "n_threads"_a, "simd"_a);
  module.def("rerank", rerank_of, "queries"_a, "vectors"_a, "positions"_a, "ranks"_a.none(),
             "k"_a, "metric"_a, "n_threads"_a, "simd"_a);
  module.def("rerank_codes", rerank_codes_of, "margins"_a, "codes"_a, "positions"_a,
             "ranks"_a.none(), "k"_a, "n_threads"_a);
}

}  // namespace densehash
