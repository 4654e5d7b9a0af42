// A reference to the engine's group.
#pragma once

#include <memory>

#include <Python.h>

#include "engine.h"
#include "errors.h"

namespace tweed {

// The interpreter ends: no other thread gets the GIL any more.
inline bool finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// Lets go of the GIL, if this thread has it, as long as it lives: for calls that take locks of the engine, in destructors
// that Python's collector may run. Who holds such a lock may wait for the GIL. Not while the interpreter ends: this
// thread would not get it back.
class WithoutGil {
 public:
  WithoutGil() : state_(may_let_go() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  static bool may_let_go() { return Py_IsInitialized() != 0 && !finalizing() && PyGILState_Check() != 0; }

  PyThreadState* const state_;
};

// Takes over a reference to an object of Python, which threads without the GIL may let go of.
inline std::shared_ptr<PyObject> shared(PyObject* object) {
  return {object, [](PyObject* last) {
            if (Py_IsInitialized() == 0 || finalizing()) return;
            const auto state = PyGILState_Ensure();
            Py_DECREF(last);
            PyGILState_Release(state);
          }};
}

// Shared by the backend, its operations in flight, and the tensors in its memory.
class Group {
 public:
  Group(const tweed_table* table, tweed_group* raw) : table(table), raw(table->group_retain(raw)) {}
  ~Group() {
    const WithoutGil without_gil;
    table->group_release(raw);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const tweed_table* const table;
  tweed_group* const raw;
};

using GroupRef = std::shared_ptr<Group>;

}  // namespace tweed
