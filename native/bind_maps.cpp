// densehash.store.maps
#include "binding.hpp"

#ifndef _WIN32
#include <sys/mman.h>
#endif

namespace densehash {

#ifndef _WIN32

namespace {

// A file mapped into memory, read-only. It does not keep the file open, as Python's maps do before
// 3.13: a process may have only a limited number of open files.
class Map {
 public:
  Map(int descriptor, size_t size) : size_(size) {
    data_ = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (data_ == MAP_FAILED) {
      PyErr_SetFromErrno(PyExc_OSError);
      throw nb::python_error();
    }
  }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;
  ~Map() { munmap(data_, size_); }

  // Releases the pages from the memory of this process; they are read again when they are needed.
  void give_back() const { madvise(data_, size_, MADV_DONTNEED); }

  static int fill(PyObject* self, Py_buffer* view, int flags) {
    const Map& map = *nb::inst_ptr<Map>(nb::handle(self));
    return PyBuffer_FillInfo(view, self, map.data_, static_cast<Py_ssize_t>(map.size_), 1, flags);
  }

 private:
  void* data_;
  size_t size_;
};

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(Map::fill)}, {0, nullptr}};

}  // namespace

void bind_maps(nb::module_& module) {
  nb::class_<Map>(module, "Map", nb::type_slots(slots), nb::is_weak_referenceable())
      .def(nb::init<int, size_t>(), "descriptor"_a, "size"_a)
      .def("give_back", &Map::give_back);
}

#else

void bind_maps(nb::module_&) {}

#endif

}  // namespace densehash
