// The module: each Python module that calls it has its own bind_*.cpp.
#include "binding.hpp"

NB_MODULE(_native, module) {
  // An index that is open when Python ends is not a leak.
  nanobind::set_leak_warnings(false);
  module.doc() = "Kernels; called through the modules that check what comes in.";
  densehash::Numpy::look_up();
  densehash::bind_hamming(module);
  densehash::bind_asymmetric(module);
  densehash::bind_groups(module);
  densehash::bind_multi(module);
  densehash::bind_signs(module);
  densehash::bind_maps(module);
  densehash::bind_copies(module);
}
