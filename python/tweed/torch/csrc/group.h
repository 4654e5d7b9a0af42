// A reference to the engine's group, and the errors it ends in.
#pragma once

#include <memory>
#include <string>
#include <utility>

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

// Shared by the backend, its operations in flight, and the tensors in its memory.
class Group {
 public:
  Group(const tweed_table* table, tweed_group* raw) : table(table), raw(table->group_retain(raw)) {}
  ~Group() { table->group_release(raw); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const tweed_table* const table;
  tweed_group* const raw;
};

using GroupRef = std::shared_ptr<Group>;

}  // namespace tweed
