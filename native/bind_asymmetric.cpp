// densehash.asymmetric
#include "asymmetric.hpp"
#include "binding.hpp"

namespace densehash {
namespace {

using TableArray = Input<uint16_t, 3>;

nb::object table_histogram_of(const TableArray& tables, const Bytes& codes, size_t n_levels,
                              unsigned shift, size_t n_threads) {
  const Tables t{tables.data(), tables.shape(0), tables.shape(1), n_levels, shift};
  const Codes c = view(codes);
  const Output<int64_t> counts(Numpy::zeros, t.count, n_levels);
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
  const Output<int64_t> counts(Numpy::zeros, t.count, n_levels);
  const Output<int64_t> relevant_counts(Numpy::zeros, t.count, n_levels);
  const Relevant relevant{limits.data(), positions.data(), relevant_counts.data};
  without_lock(n_threads, [&](Control& control) {
    table_histogram(t, c, &relevant, control, counts.data);
  });
  return nb::make_tuple(counts.array, relevant_counts.array);
}

}  // namespace

void bind_asymmetric(nb::module_& module) {
  module.def("table_histogram", table_histogram_of, "tables"_a, "codes"_a, "n_levels"_a,
             "shift"_a, "n_threads"_a);
  module.def("table_histograms", table_histograms_of, "tables"_a, "codes"_a, "limits"_a,
             "positions"_a, "n_levels"_a, "shift"_a, "n_threads"_a);
}

}  // namespace densehash
