// What every binding needs: arrays in, arrays out, and the interpreter's lock let go in between.
// Input was checked by the Python module that calls.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <string>
#include <type_traits>

#include "kernels.hpp"
#include "parallel.hpp"
#include "scan.hpp"

namespace densehash {

namespace nb = nanobind;
using namespace nb::literals;

template <class T, size_t n_dimensions>
using Input = nb::ndarray<const T, nb::ndim<n_dimensions>, nb::c_contig, nb::device::cpu>;
using Bytes = Input<uint8_t, 2>;
using Positions = Input<int64_t, 1>;

inline Codes view(const Bytes& array) { return {array.data(), array.shape(0), array.shape(1)}; }

inline const Kernels& kernels_named(const std::string& name) {
  const Kernels* kernels = find_kernels(name.c_str());
  if (kernels == nullptr) throw nb::value_error(("no instruction set " + name).c_str());
  return *kernels;
}

// A new numpy array, not set. Needs the interpreter's lock.
template <class T>
struct Output {
  template <class... Sizes>
  explicit Output(const char* maker, Sizes... sizes) {
    constexpr char kind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
    const std::string dtype = kind + std::to_string(sizeof(T));
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

// Each adds its functions to the module; one for each bind_*.cpp.
void bind_hamming(nb::module_& module);
void bind_asymmetric(nb::module_& module);
void bind_groups(nb::module_& module);
void bind_multi(nb::module_& module);
void bind_signs(nb::module_& module);

}  // namespace densehash
