// Shared by all bindings: arrays in, arrays out, and the interpreter's lock released in between.
// The calling Python module has checked the input.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <string>
#include <type_traits>

#include "kernels.hpp"
#include "parallel.hpp"
#include "rerank.hpp"
#include "scan.hpp"

namespace densehash {

namespace nb = nanobind;
using namespace nb::literals;

template <class T, size_t n_dimensions>
using Input = nb::ndarray<const T, nb::ndim<n_dimensions>, nb::c_contig, nb::device::cpu>;
using Bytes = Input<uint8_t, 2>;
using Positions = Input<int64_t, 1>;
using Vectors = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline Codes view(const Bytes& array) { return {array.data(), array.shape(0), array.shape(1)}; }

inline const Kernels& kernels_named(const std::string& name) {
  const Kernels* kernels = find_kernels(name.c_str());
  if (kernels == nullptr) throw nb::value_error(("no instruction set " + name).c_str());
  return *kernels;
}

inline Metric metric_named(const std::string& name) {
  if (name == "l2") return Metric::l2;
  if (name == "cosine") return Metric::cosine;
  if (name == "ip") return Metric::ip;
  throw nb::value_error(("no metric " + name).c_str());
}

// The functions that make arrays, looked up once: an import runs Python code, and while Python code
// runs, a thread can lose the interpreter's lock and be ended (see Call) in the middle of C++.
struct Numpy {
  static inline nb::handle empty, zeros;

  static void look_up() {
    const nb::module_ numpy = nb::module_::import_("numpy");
    empty = nb::object(numpy.attr("empty")).release();
    zeros = nb::object(numpy.attr("zeros")).release();
  }
};

// A new numpy array, made by numpy.empty or numpy.zeros. Needs the interpreter's lock.
template <class T>
struct Output {
  template <class... Sizes>
  explicit Output(nb::handle maker, Sizes... sizes) {
    constexpr char kind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
    const std::string dtype = kind + std::to_string(sizeof(T));
    array = maker(nb::make_tuple(sizes...), dtype);
    data = nb::cast<nb::ndarray<T, nb::c_contig, nb::device::cpu>>(array).data();
  }
  nb::object array;
  T* data;
};

// A new numpy array of objects (n, k), all None at first. Needs the interpreter's lock.
class Objects {
 public:
  Objects(size_t n, size_t k) : array(Numpy::empty(nb::make_tuple(n, k), "O")) {
    if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_CONTIG | PyBUF_FORMAT) != 0)
      throw nb::python_error();
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;
  ~Objects() { PyBuffer_Release(&view_); }

  void set(size_t i, nb::object value) const {
    PyObject*& at = static_cast<PyObject**>(view_.buf)[i];
    const nb::object before = nb::steal(at);
    at = value.release().ptr();
  }

  nb::object array;

 private:
  Py_buffer view_;
};

// Takes the interpreter's lock for the thread that had `state`, or sleeps until the process ends:
// see Call.
void take_lock(PyThreadState* state);

// A call that has released the interpreter's lock. It checks for Ctrl-C about ten times a second.
//
// During shutdown, Python up to 3.13 ends every other thread that takes the lock, by pthread_exit.
// That must not get past this class: it could unwind the stack through noexcept functions, which
// aborts, or free the stack while other threads still use it. So the thread sleeps until the
// process ends, as it does from Python 3.14 on. To check first whether Python is shutting down is
// not enough: the shutdown may begin right after the check.
class Call : public Control {
 public:
  explicit Call(size_t n_threads)
      : Control(n_threads, [this] { return locked([] { return PyErr_CheckSignals() != 0; }); }),
        state_(PyEval_SaveThread()) {}

  // Takes the lock again during work().
  template <class Work>
  std::invoke_result_t<Work> locked(Work&& work) {
    struct LetGo {
      ~LetGo() { call.state_ = PyEval_SaveThread(); }
      Call& call;
    };
    take_lock();
    const LetGo at_the_end{*this};
    return work();
  }

  // After this, only the destructor may be called.
  void take_lock() { densehash::take_lock(state_); }

 private:
  PyThreadState* state_;
};

// Runs work(call) without the interpreter's lock; throws what work throws, or the error of Ctrl-C.
template <class Work>
void without_lock(size_t n_threads, Work&& work) {
  Call call(n_threads);
  std::exception_ptr error;
  try {
    work(call);
  } catch (...) {
    error = std::current_exception();
  }
  call.take_lock();
  if (call.was_interrupted()) throw nb::python_error();
  if (error) std::rethrow_exception(error);
}

// Each adds its functions to the module; one for each bind_*.cpp.
void bind_hamming(nb::module_& module);
void bind_asymmetric(nb::module_& module);
void bind_groups(nb::module_& module);
void bind_multi(nb::module_& module);
void bind_signs(nb::module_& module);
void bind_maps(nb::module_& module);
void bind_copies(nb::module_& module);

}  // namespace densehash
