// The binding: arrays in, arrays out. Input was checked by densehash.checks.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "asymmetric.hpp"
#include "search.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace densehash {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Positions = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using TableArray = nb::ndarray<const uint16_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
Codes view(const Bytes& array) { return {array.data(), array.shape(0), array.shape(1)}; }

const Kernels& kernels_named(const std::string& name) {
  const Kernels* kernels = find_kernels(name.c_str());
  if (kernels == nullptr) throw nb::value_error(("no instruction set " + name).c_str());
  return *kernels;
}

// A new numpy array, not set. Needs the interpreter's lock.
template <class T>
struct Output {
  template <class... Sizes>
  explicit Output(const char* maker, Sizes... sizes) {
    const char* dtype = sizeof(T) == 8 ? "int64" : sizeof(T) == 4 ? "int32" : "uint16";
    array = nb::module_::import_("numpy").attr(maker)(nb::make_tuple(sizes...), dtype);
    data = nb::cast<nb::ndarray<T, nb::c_contig, nb::device::cpu>>(array).data();
  }
  nb::object array;
  T* data;
};

// Runs work(control) without the interpreter's lock; Ctrl-C is looked for about ten times a
// second, and then raised here.
template <class Work>
void without_lock(size_t n_threads, Work&& work) {
  Control control(n_threads, [] {
    const nb::gil_scoped_acquire lock;
    return PyErr_CheckSignals() != 0;
  });
  try {
    const nb::gil_scoped_release unlocked;
    work(control);
  } catch (const Stopped&) {
    if (!control.was_interrupted()) throw;
  }
  if (control.was_interrupted()) throw nb::python_error();
}

nb::tuple top_k_of(const Bytes& queries, const Bytes& codes, size_t k, size_t n_threads,
                   const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries), c = view(codes);
  const Output<int32_t> near("empty", q.count, k);
  const Output<int64_t> indices("empty", q.count, k);
  without_lock(n_threads, [&](Control& control) {
    top_k(kernels, q, c, k, control, near.data, indices.data);
  });
  return nb::make_tuple(near.array, indices.array);
}

nb::tuple within_of(const Bytes& queries, const Bytes& codes, size_t radius, size_t n_threads,
                    const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries), c = view(codes);
  const Output<int64_t> limits("empty", q.count + 1);
  std::optional<Output<int32_t>> near;
  std::optional<Output<int64_t>> indices;
  without_lock(n_threads, [&](Control& control) {
    within(kernels, q, c, radius, control, limits.data, [&](size_t total) {
      const nb::gil_scoped_acquire lock;
      near.emplace("empty", total);
      indices.emplace("empty", total);
      return Room{near->data, indices->data};
    });
  });
  return nb::make_tuple(limits.array, near->array, indices->array);
}

nb::object distances_of(const Bytes& queries, const Bytes& codes, size_t n_threads,
                        const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries), c = view(codes);
  const Output<uint16_t> all("empty", q.count, c.count);
  without_lock(n_threads,
               [&](Control& control) { distances(kernels, q, c, control, all.data); });
  return all.array;
}

nb::object histogram_of(const Bytes& queries, const Bytes& codes, size_t n_threads,
                        const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries), c = view(codes);
  const Output<int64_t> counts("zeros", q.count, c.bits() + 1);
  without_lock(n_threads, [&](Control& control) {
    histogram(kernels, q, c, nullptr, control, counts.data);
  });
  return counts.array;
}

nb::tuple histograms_of(const Bytes& queries, const Bytes& codes, const Positions& limits,
                        const Positions& positions, size_t n_threads, const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries), c = view(codes);
  const Output<int64_t> counts("zeros", q.count, c.bits() + 1);
  const Output<int64_t> relevant_counts("zeros", q.count, c.bits() + 1);
  const Relevant relevant{limits.data(), positions.data(), relevant_counts.data};
  without_lock(n_threads, [&](Control& control) {
    histogram(kernels, q, c, &relevant, control, counts.data);
  });
  return nb::make_tuple(counts.array, relevant_counts.array);
}

nb::object table_histogram_of(const TableArray& tables, const Bytes& codes, size_t n_levels,
                              unsigned shift, size_t n_threads) {
  const Tables t{tables.data(), tables.shape(0), tables.shape(1), n_levels, shift};
  const Codes c = view(codes);
  const Output<int64_t> counts("zeros", t.count, n_levels);
  without_lock(n_threads, [&](Control& control) {
    table_histogram(t, c, nullptr, control, counts.data);
  });
  return counts.array;
}

nb::tuple table_histograms_of(const TableArray& tables, const Bytes& codes,
                              const Positions& limits, const Positions& positions,
                              size_t n_levels, unsigned shift, size_t n_threads) {
  const Tables t{tables.data(), tables.shape(0), tables.shape(1), n_levels, shift};
  const Codes c = view(codes);
  const Output<int64_t> counts("zeros", t.count, n_levels);
  const Output<int64_t> relevant_counts("zeros", t.count, n_levels);
  const Relevant relevant{limits.data(), positions.data(), relevant_counts.data};
  without_lock(n_threads, [&](Control& control) {
    table_histogram(t, c, &relevant, control, counts.data);
  });
  return nb::make_tuple(counts.array, relevant_counts.array);
}

nb::tuple instruction_sets() {
  nb::list names;
  for (const char* const* name = kernel_names(); *name != nullptr; ++name) names.append(*name);
  return nb::tuple(names);
}

}  // namespace
}  // namespace densehash

NB_MODULE(_native, module) {
  using namespace densehash;
  module.doc() = "Kernels; called through densehash.hamming and densehash.asymmetric, which check "
                 "what comes in.";
  module.def("top_k", top_k_of, "queries"_a, "codes"_a, "k"_a, "n_threads"_a, "simd"_a);
  module.def("within", within_of, "queries"_a, "codes"_a, "radius"_a, "n_threads"_a, "simd"_a);
  module.def("distances", distances_of, "queries"_a, "codes"_a, "n_threads"_a, "simd"_a);
  module.def("histogram", histogram_of, "queries"_a, "codes"_a, "n_threads"_a, "simd"_a);
  module.def("histograms", histograms_of, "queries"_a, "codes"_a, "limits"_a, "positions"_a,
             "n_threads"_a, "simd"_a);
  module.def("table_histogram", table_histogram_of, "tables"_a, "codes"_a, "n_levels"_a,
             "shift"_a, "n_threads"_a);
  module.def("table_histograms", table_histograms_of, "tables"_a, "codes"_a, "limits"_a,
             "positions"_a, "n_levels"_a, "shift"_a, "n_threads"_a);
  module.def("instruction_sets", instruction_sets);
}
