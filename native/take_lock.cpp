// Compiled without exceptions. With exceptions, pthread_cleanup_push is an object, and pthread_exit
// unwinds the stack to its destructor, which crashes if the C++ library inside the module has its
// own unwinder. Without them, pthread_exit jumps to the handler.
#include <Python.h>
#include <pthread.h>
#include <unistd.h>

namespace densehash {

void take_lock(PyThreadState* state);

namespace {

void sleep_for_ever(void*) {
  for (;;) pause();
}

}  // namespace

void take_lock(PyThreadState* state) {
  pthread_cleanup_push(sleep_for_ever, nullptr);
  PyEval_RestoreThread(state);
  pthread_cleanup_pop(0);
}

}  // namespace densehash
