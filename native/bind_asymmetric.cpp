// densehash.asymmetric
#include "asymmetric.hpp"
#include "binding.hpp"

namespace densehash {
namespace {

using LookupArray = Input<uint16_t, 3>;

nb::object lookup_histogram_of(const LookupArray& lookups, const Bytes& codes, size_t n_levels,
                               unsigned shift, size_t n_threads) {
  const ByteLookups l{lookups.data(), lookups.shape(0), lookups.shape(1), n_levels, shift};
  const Codes c = view(codes);
  const Output<int64_t> counts(Numpy::zeros, l.count, n_levels);
  without_lock(n_threads,
               [&](Control& control) { lookup_histogram(l, c, nullptr, control, counts.data); });
  return counts.array;
}

nb::tuple lookup_histograms_of(const LookupArray& lookups, const Bytes& codes,
                               const Positions& limits, const Positions& positions,
                               size_t n_levels, unsigned shift, size_t n_threads) {
  const ByteLookups l{lookups.data(), lookups.shape(0), lookups.shape(1), n_levels, shift};
  const Codes c = view(codes);
  const Output<int64_t> counts(Numpy::zeros, l.count, n_levels);
  const Output<int64_t> relevant_counts(Numpy::zeros, l.count, n_levels);
  const Relevant relevant{limits.data(), positions.data(), relevant_counts.data};
  without_lock(n_threads,
               [&](Control& control) { lookup_histogram(l, c, &relevant, control, counts.data); });
  return nb::make_tuple(counts.array, relevant_counts.array);
}

}  // namespace

void bind_asymmetric(nb::module_& module) {
  module.def("lookup_histogram", lookup_histogram_of, "lookups"_a, "codes"_a, "n_levels"_a,
             "shift"_a, "n_threads"_a);
  module.def("lookup_histograms", lookup_histograms_of, "lookups"_a, "codes"_a, "limits"_a,
             "positions"_a, "n_levels"_a, "shift"_a, "n_threads"_a);
}

}  // namespace densehash
