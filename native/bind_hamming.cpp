// densehash.hamming
#include <optional>

#include "binding.hpp"
#include "search.hpp"

namespace densehash {
namespace {

nb::tuple top_k_of(const Bytes& queries, const Bytes& codes, size_t k, size_t n_threads,
                   const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries), c = view(codes);
  const Output<int32_t> near(Numpy::empty, q.count, k);
  const Output<int64_t> indices(Numpy::empty, q.count, k);
  without_lock(n_threads, [&](Control& control) {
    top_k(kernels, q, c, k, control, near.data, indices.data);
  });
  return nb::make_tuple(near.array, indices.array);
}

nb::tuple within_of(const Bytes& queries, const Bytes& codes, size_t radius, size_t n_threads,
                    const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries), c = view(codes);
  const Output<int64_t> limits(Numpy::empty, q.count + 1);
  std::optional<Output<int32_t>> near;
  std::optional<Output<int64_t>> indices;
  without_lock(n_threads, [&](Call& call) {
    within(kernels, q, c, radius, call, limits.data, [&](size_t total) {
      return call.locked([&] {
        near.emplace(Numpy::empty, total);
        indices.emplace(Numpy::empty, total);
        return Room{near->data, indices->data};
      });
    });
  });
  return nb::make_tuple(limits.array, near->array, indices->array);
}

nb::object distances_of(const Bytes& queries, const Bytes& codes, size_t n_threads,
                        const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries), c = view(codes);
  const Output<uint16_t> all(Numpy::empty, q.count, c.count);
  without_lock(n_threads,
               [&](Control& control) { distances(kernels, q, c, control, all.data); });
  return all.array;
}

nb::object histogram_of(const Bytes& queries, const Bytes& codes, size_t n_threads,
                        const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries), c = view(codes);
  const Output<int64_t> counts(Numpy::zeros, q.count, c.bits() + 1);
  without_lock(n_threads, [&](Control& control) {
    histogram(kernels, q, c, nullptr, control, counts.data);
  });
  return counts.array;
}

nb::tuple histograms_of(const Bytes& queries, const Bytes& codes, const Positions& limits,
                        const Positions& positions, size_t n_threads, const std::string& simd) {
  const Kernels& kernels = kernels_named(simd);
  const Codes q = view(queries), c = view(codes);
  const Output<int64_t> counts(Numpy::zeros, q.count, c.bits() + 1);
  const Output<int64_t> relevant_counts(Numpy::zeros, q.count, c.bits() + 1);
  const Relevant relevant{limits.data(), positions.data(), relevant_counts.data};
  without_lock(n_threads, [&](Control& control) {
    histogram(kernels, q, c, &relevant, control, counts.data);
  });
  return nb::make_tuple(counts.array, relevant_counts.array);
}

nb::tuple instruction_sets() {
  nb::list names;
  for (const char* const* name = kernel_names(); *name != nullptr; ++name) names.append(*name);
  return nb::tuple(names);
}

}  // namespace

void bind_hamming(nb::module_& module) {
  module.def("top_k", top_k_of, "queries"_a, "codes"_a, "k"_a, "n_threads"_a, "simd"_a);
  module.def("within", within_of, "queries"_a, "codes"_a, "radius"_a, "n_threads"_a, "simd"_a);
  module.def("distances", distances_of, "queries"_a, "codes"_a, "n_threads"_a, "simd"_a);
  module.def("histogram", histogram_of, "queries"_a, "codes"_a, "n_threads"_a, "simd"_a);
  module.def("histograms", histograms_of, "queries"_a, "codes"_a, "limits"_a, "positions"_a,
             "n_threads"_a, "simd"_a);
  module.def("instruction_sets", instruction_sets);
}

}  // namespace densehash
