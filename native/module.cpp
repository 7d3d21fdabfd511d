// The module: one file a Python module that calls it.
#include "binding.hpp"

NB_MODULE(_native, module) {
  module.doc() = "Kernels; called through the modules that check what comes in.";
  densehash::bind_hamming(module);
  densehash::bind_asymmetric(module);
  densehash::bind_groups(module);
  densehash::bind_multi(module);
  densehash::bind_signs(module);
}
