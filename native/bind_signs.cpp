// densehash.index.sketches
#include <nanobind/stl/optional.h>

#include "binding.hpp"
#include "signs.hpp"

namespace densehash {
namespace {

using Matrix = Input<float, 2>;

void expect(bool is_so, const char* message) {
  if (!is_so) throw std::invalid_argument(message);
}

nb::object multiply_of(const Matrix& rows, const Matrix& matrix, size_t n_threads) {
  expect(rows.shape(1) == matrix.shape(0), "the rows do not fit the matrix");
  expect(matrix.shape(1) % 8 == 0, "columns must be a multiple of 8");
  const Decoder decoder{matrix.data(), nullptr, matrix.shape(1), matrix.shape(0)};
  const Output<float> out("empty", rows.shape(0), decoder.bits);
  without_lock(n_threads, [&](Control& control) {
    multiply(rows.data(), rows.shape(0), decoder, control, out.data);
  });
  return out.array;
}

nb::tuple encode_signs_of(const Matrix& rows, const std::optional<Matrix>& centers,
                          const std::optional<Input<uint32_t, 1>>& labels, const Matrix& matrix,
                          const Matrix& gram, size_t sweeps, size_t n_threads) {
  const size_t n = rows.shape(0), width = rows.shape(1), bits = gram.shape(0);
  expect(bits % 8 == 0 && gram.shape(1) == bits, "the Gram matrix has a wrong shape");
  expect(matrix.shape(0) == width && matrix.shape(1) == bits, "the matrix has a wrong shape");
  expect(centers.has_value() == labels.has_value(), "centers and labels come together");
  Residuals residuals{rows.data(), nullptr, nullptr, n, 0};
  if (centers) {
    expect(centers->shape(1) == width && labels->shape(0) == n, "centers have a wrong shape");
    residuals.centers = centers->data();
    residuals.labels = labels->data();
    residuals.n_groups = centers->shape(0);
    for (size_t i = 0; i < n; ++i)
      expect(residuals.labels[i] < residuals.n_groups, "a label is beyond the last group");
  }
  const Decoder decoder{matrix.data(), gram.data(), bits, width};
  const Output<uint8_t> codes("empty", n, bits / 8);
  static_assert(sizeof(Lengths) == 3 * sizeof(float));
  const Output<float> lengths("empty", n, size_t{3});
  without_lock(n_threads, [&](Control& control) {
    encode_signs(decoder, residuals, sweeps, control, codes.data,
                 reinterpret_cast<Lengths*>(lengths.data));
  });
  return nb::make_tuple(codes.array, lengths.array);
}

}  // namespace

void bind_signs(nb::module_& module) {
  module.def("multiply", multiply_of, "rows"_a, "matrix"_a, "n_threads"_a);
  module.def("encode_signs", encode_signs_of, "rows"_a, "centers"_a.none(), "labels"_a.none(),
             "matrix"_a, "gram"_a, "sweeps"_a, "n_threads"_a);
}

}  // namespace densehash
