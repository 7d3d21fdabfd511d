// densehash.index.multi_tables
#include <nanobind/stl/optional.h>

#include <optional>

#include "binding.hpp"
#include "multi.hpp"

namespace densehash {
namespace {

using Entries = Input<uint32_t, 1>;
using Rows = Input<uint32_t, 2>;
using Allowed = std::optional<Input<bool, 1>>;

// Checks all sizes, on which the rest relies.
struct Given {
  Given(const Bytes& codes, size_t n_bits, const Entries& starts, const Rows& rows,
        const Allowed& allowed)
      : substrings(n_bits, codes.shape(1), rows.shape(0)),
        tables{substrings, view(codes), starts.data(), rows.data(),
               allowed ? reinterpret_cast<const uint8_t*>(allowed->data()) : nullptr} {
    if (starts.shape(0) != substrings.n_entries() || rows.shape(1) != tables.codes.count)
      MultiTables::throw_damaged();
    if (allowed && allowed->shape(0) != tables.codes.count)
      throw nb::value_error("allowed has another length than codes");
  }

  Substrings substrings;
  MultiTables tables;
};

nb::tuple build_tables_of(const Bytes& codes, size_t n_bits, size_t n_tables, size_t n_threads) {
  const Codes c = view(codes);
  const Substrings substrings(n_bits, c.bytes, n_tables);
  const Output<uint32_t> starts(Numpy::empty, substrings.n_entries());
  const Output<uint32_t> rows(Numpy::zeros, n_tables, c.count);
  without_lock(n_threads, [&](Control& control) {
    build_tables(substrings, c, control, starts.data, rows.data);
  });
  return nb::make_tuple(starts.array, rows.array);
}

nb::tuple multi_top_k_of(const Bytes& queries, const Bytes& codes, size_t n_bits,
                         const Entries& starts, const Rows& rows, const Allowed& allowed, size_t k,
                         double patience, size_t n_threads, const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries);
  const Given given(codes, n_bits, starts, rows, allowed);
  const Output<int32_t> near(Numpy::empty, q.count, k);
  const Output<int64_t> positions(Numpy::empty, q.count, k);
  without_lock(n_threads, [&](Control& control) {
    multi_top_k(kernels, q, given.tables, k, patience, control, near.data, positions.data);
  });
  return nb::make_tuple(near.array, positions.array);
}

nb::tuple multi_within_of(const Bytes& queries, const Bytes& codes, size_t n_bits,
                          const Entries& starts, const Rows& rows, const Allowed& allowed,
                          size_t radius, double patience, size_t n_threads,
                          const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries);
  const Given given(codes, n_bits, starts, rows, allowed);
  const Output<int64_t> limits(Numpy::empty, q.count + 1);
  std::optional<Output<int32_t>> near;
  std::optional<Output<int64_t>> positions;
  without_lock(n_threads, [&](Call& call) {
    const auto make_room = [&](size_t total) {
      return call.locked([&] {
        near.emplace(Numpy::empty, total);
        positions.emplace(Numpy::empty, total);
        return Room{near->data, positions->data};
      });
    };
    multi_within(kernels, q, given.tables, radius, patience, call, limits.data, make_room);
  });
  return nb::make_tuple(limits.array, near->array, positions->array);
}

nb::tuple multi_probe_of(const Bytes& queries, const Input<float, 2>& margins, const Bytes& codes,
                         size_t n_bits, const Entries& starts, const Rows& rows,
                         const Allowed& allowed, size_t n_probes, size_t k, size_t n_threads,
                         const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries);
  const Given given(codes, n_bits, starts, rows, allowed);
  const Output<int32_t> near(Numpy::empty, q.count, k);
  const Output<int64_t> positions(Numpy::empty, q.count, k);
  without_lock(n_threads, [&](Control& control) {
    multi_probe(kernels, q, margins.data(), n_bits, given.tables, n_probes, k, control, near.data,
                positions.data);
  });
  return nb::make_tuple(near.array, positions.array);
}

}  // namespace

void bind_multi(nb::module_& module) {
  module.def("build_tables", build_tables_of, "codes"_a, "n_bits"_a, "n_tables"_a, "n_threads"_a);
  module.def("multi_top_k", multi_top_k_of, "queries"_a, "codes"_a, "n_bits"_a, "starts"_a,
             "rows"_a, "allowed"_a.none(), "k"_a, "patience"_a, "n_threads"_a, "simd"_a);
  module.def("multi_within", multi_within_of, "queries"_a, "codes"_a, "n_bits"_a, "starts"_a,
             "rows"_a, "allowed"_a.none(), "radius"_a, "patience"_a, "n_threads"_a,
             "simd"_a);
  module.def("multi_probe", multi_probe_of, "queries"_a, "margins"_a, "codes"_a, "n_bits"_a,
             "starts"_a, "rows"_a, "allowed"_a.none(), "n_probes"_a, "k"_a, "n_threads"_a,
             "simd"_a);
}

}  // namespace densehash
