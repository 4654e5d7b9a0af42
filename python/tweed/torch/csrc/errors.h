// The errors that a call of the engine ends in.
#pragma once

#include <string>

#include <Python.h>
#include <torch/csrc/Exceptions.h>

#include "engine.h"

namespace tweed {

// An error of tweed. torch's bindings turn it into the class of python/tweed/errors.py that belongs to `status`,
// also when it has passed through a future or the autograd engine.
class Error : public torch::PyTorchError {
 public:
  Error(tweed_status status, std::string text);
  PyObject* python_type() override;
  tweed_status status() const { return status_; }

 private:
  tweed_status status_;
};

// Raises UsageError: the call was wrong, and nothing was sent.
[[noreturn]] void misuse(const char* operation, const std::string& text);

// Fetches the classes of python/tweed/errors.py and tells pybind11 of Error. Needs the GIL.
void register_errors();

}  // namespace tweed
