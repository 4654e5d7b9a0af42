#include "errors.h"

#include <array>
#include <stdexcept>

#include <pybind11/pybind11.h>

namespace tweed {
namespace {

constexpr size_t kStatuses = TWEED_FORKED + 1;

// Never released: an error may be raised until the interpreter's last moment.
std::array<PyObject*, kStatuses>& classes() {
  static std::array<PyObject*, kStatuses> found{};
  return found;
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (Error& error) {
    PyErr_SetString(error.python_type(), error.what());
  }
}

}  // namespace

Error::Error(tweed_status status, std::string text) : torch::PyTorchError(std::move(text)), status_(status) {}

PyObject* Error::python_type() {
  PyObject* found = classes().at(status_);
  return found != nullptr ? found : PyExc_RuntimeError;
}

void misuse(const char* operation, const std::string& text) {
  throw Error(TWEED_USAGE, std::string(operation) + ": " + text);
}

void register_errors() {
  const auto errors = pybind11::module_::import("tweed.errors");
  const auto set = [&](tweed_status status, const char* name) {
    classes().at(status) = errors.attr(name).cast<pybind11::object>().release().ptr();
  };
  set(TWEED_USAGE, "UsageError");
  set(TWEED_SHAPE_MISMATCH, "ShapeMismatch");
  set(TWEED_PEER_LOST, "PeerLost");
  set(TWEED_DEADLINE, "DeadlineExceeded");
  set(TWEED_ABORTED, "Aborted");
  set(TWEED_FORKED, "ForkedProcess");
  pybind11::register_exception_translator(&translate);
}

}  // namespace tweed
