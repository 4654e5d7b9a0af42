#include "host_memory.h"

#include <charconv>

#include <ATen/core/LegacyTypeDispatch.h>

namespace tweed {
namespace {

bool in_place(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor host_like(const at::Tensor& tensor) {
  const auto options = tensor.options().device(at::kCPU).pinned_memory(tensor.is_cuda());
  return at::empty(tensor.sizes(), options, at::MemoryFormat::Contiguous);
}

tweed_segment whole(const at::Tensor& host) {
  return {host.data_ptr(), static_cast<uint64_t>(host.nbytes())};
}

tweed_dtype dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf: return TWEED_F16;
    case at::kBFloat16: return TWEED_BF16;
    case at::kFloat: return TWEED_F32;
    case at::kDouble: return TWEED_F64;
    case at::kChar: return TWEED_I8;
    case at::kShort: return TWEED_I16;
    case at::kInt: return TWEED_I32;
    case at::kLong: return TWEED_I64;
    case at::kByte: return TWEED_U8;
    case at::kUInt16: return TWEED_U16;
    case at::kUInt32: return TWEED_U32;
    case at::kUInt64: return TWEED_U64;
    case at::kBool: return TWEED_BOOL;
    default: return TWEED_BYTES;
  }
}

// Complex numbers add up part by part; no other reduction of them is defined.
tweed_dtype reducible(const char* title, at::ScalarType type, tweed_reduce_op op) {
  const bool additive = op == TWEED_SUM || op == TWEED_AVG || op == TWEED_PREMUL_SUM;
  if (additive && type == at::kComplexFloat) return TWEED_F32;
  if (additive && type == at::kComplexDouble) return TWEED_F64;
  const tweed_dtype found = dtype_of(type);
  if (found == TWEED_BYTES) {
    misuse(title, std::string("cannot reduce ") + c10::toString(type) + " with this operator; convert it first");
  }
  return found;
}

double factor_of(const c10d::ReduceOp& op) {
  const auto* premul = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (premul == nullptr) return 1.0;
  return premul->tensor_factor.defined() ? premul->tensor_factor.item<double>() : premul->double_factor;
}

void write_shape(std::array<char, 96>& text, at::IntArrayRef sizes) {
  char* at = text.data();
  char* const end = text.data() + text.size() - 24;  // room for one more number and the bracket
  *at++ = '[';
  for (size_t i = 0; i < sizes.size() && at < end; ++i) {
    if (i > 0) at = std::copy_n(", ", 2, at);
    at = std::to_chars(at, at + 20, sizes[i]).ptr;
  }
  *at++ = ']';
  *at = '\0';
}

}  // namespace

void Kept::settle() {
  const at::AutoDispatchBelowADInplaceOrView raw;  // the caller's tensor is written as memory, as other backends do
  for (auto& [target, host] : back) target.copy_(host);
  back.clear();
  alive.clear();
}

at::Tensor Call::source(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) misuse(kind.title, "expected a dense tensor; call .to_dense() first");
  if (in_place(tensor)) return tensor;
  const at::AutoDispatchBelowADInplaceOrView raw;
  return host_like(tensor).copy_(tensor);
}

at::Tensor Call::target(const at::Tensor& tensor, bool filled) {
  if (tensor.layout() != at::kStrided) misuse(kind.title, "expected a dense tensor; call .to_dense() first");
  kept.results.push_back(tensor);
  if (in_place(tensor)) return tensor;
  at::Tensor host = filled ? source(tensor) : host_like(tensor);
  kept.back.emplace_back(tensor, host);
  return host;
}

void Call::in(const at::Tensor& tensor) {
  at::Tensor host = source(tensor);
  inputs.push_back(whole(host));
  kept.alive.push_back(std::move(host));
}

void Call::out(const at::Tensor& tensor) {
  outputs.push_back(whole(target(tensor, false)));
}

void Call::inout(const at::Tensor& tensor) {
  const tweed_segment segment = whole(target(tensor, true));
  inputs.push_back(segment);
  outputs.push_back(segment);
}

void Call::in_parts(const at::Tensor& tensor, size_t ranks, const std::vector<int64_t>& splits) {
  at::Tensor host = source(tensor);
  parts(inputs, host, ranks, splits);
  kept.alive.push_back(std::move(host));
}

void Call::out_parts(const at::Tensor& tensor, size_t ranks, const std::vector<int64_t>& splits) {
  parts(outputs, target(tensor, false), ranks, splits);
}

void Call::parts(c10::SmallVector<tweed_segment, 8>& list, const at::Tensor& host, size_t ranks,
                 const std::vector<int64_t>& splits) {
  auto* at = static_cast<char*>(host.data_ptr());
  const int64_t rows = splits.empty() ? static_cast<int64_t>(ranks) : host.size(0);
  const uint64_t row_bytes = rows == 0 ? 0 : host.nbytes() / rows;
  for (size_t i = 0; i < ranks; ++i) {
    const uint64_t bytes = splits.empty() ? row_bytes : row_bytes * splits[i];
    list.push_back({at, bytes});
    at += bytes;
  }
}

void Call::describe(const at::Tensor& tensor) {
  request.dtype = dtype_of(tensor.scalar_type());
  write_shape(shape, tensor.sizes());
  request.shape = shape.data();
}

void Call::reduce(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  if (op.op_ > c10d::ReduceOp::PREMUL_SUM) misuse(kind.title, "unknown reduce operator");
  request.reduce_op = static_cast<tweed_reduce_op>(op.op_);
  request.dtype = reducible(kind.title, tensor.scalar_type(), static_cast<tweed_reduce_op>(op.op_));
  request.factor = factor_of(op);
}

}  // namespace tweed
