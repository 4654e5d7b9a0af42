// One call of a collective, made ready for the engine: segments of host memory, and what must outlive the call.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "group.h"

namespace tweed {

using Tensors = c10::SmallVector<at::Tensor, 4>;

// What an operation in flight keeps alive, and what is left to do when it has ended.
struct Kept {
  Tensors results;                                       // the caller's outputs
  Tensors alive;                                         // inputs and staging buffers
  std::vector<std::pair<at::Tensor, at::Tensor>> back;   // (caller's output, staging buffer)

  // Copies staged results to where the caller wants them, then lets go of all but `results`.
  void settle();
};

// What every kind of call has in common.
struct Kind {
  tweed_operation operation;
  c10d::OpType type;
  const char* title;  // as the profiler shows it
};

// Collects segments. Tensors that are contiguous in host memory are used in place; others (other strides, lazily
// conjugated, on an accelerator) pass through a contiguous host copy, pinned for CUDA.
class Call {
 public:
  explicit Call(const Kind& kind) : kind(kind) { request.operation = kind.operation; }

  void in(const at::Tensor& tensor);
  void out(const at::Tensor& tensor);
  void inout(const at::Tensor& tensor);

  // Adds one segment per part; `splits` counts rows of dimension 0, empty for `ranks` equal parts.
  void in_parts(const at::Tensor& tensor, size_t ranks, const std::vector<int64_t>& splits = {});
  void out_parts(const at::Tensor& tensor, size_t ranks, const std::vector<int64_t>& splits = {});

  // Describes the data for the engine and its error texts; the first tensor of the call.
  void describe(const at::Tensor& tensor);
  // For reductions: the operator, and complex numbers as pairs of real ones.
  void reduce(const c10d::ReduceOp& op, const at::Tensor& tensor);

  const Kind& kind;
  tweed_request request{};
  c10::SmallVector<tweed_segment, 8> inputs;
  c10::SmallVector<tweed_segment, 8> outputs;
  Kept kept;
  std::array<char, 96> shape{};

 private:
  at::Tensor source(const at::Tensor& tensor);
  at::Tensor target(const at::Tensor& tensor, bool filled);
  void parts(c10::SmallVector<tweed_segment, 8>& list, const at::Tensor& host, size_t ranks,
             const std::vector<int64_t>& splits);
};

}  // namespace tweed
