// The collectives. Each checks what only this rank can know, names its segments, and hands over to `launch`;
// what ranks must agree on is checked by the engine.
#include "backend.h"

namespace tweed {
namespace {

using c10d::OpType;

const Kind kAllReduce{TWEED_ALL_REDUCE, OpType::ALLREDUCE, "tweed:all_reduce"};
const Kind kBroadcast{TWEED_BROADCAST, OpType::BROADCAST, "tweed:broadcast"};
const Kind kReduce{TWEED_REDUCE, OpType::REDUCE, "tweed:reduce"};
const Kind kAllGather{TWEED_ALL_GATHER, OpType::ALLGATHER, "tweed:all_gather"};
const Kind kAllGatherBase{TWEED_ALL_GATHER, OpType::_ALLGATHER_BASE, "tweed:_all_gather_base"};
const Kind kReduceScatter{TWEED_REDUCE_SCATTER, OpType::REDUCE_SCATTER, "tweed:reduce_scatter"};
const Kind kReduceScatterBase{TWEED_REDUCE_SCATTER, OpType::_REDUCE_SCATTER_BASE, "tweed:_reduce_scatter_base"};
const Kind kGather{TWEED_GATHER, OpType::GATHER, "tweed:gather"};
const Kind kScatter{TWEED_SCATTER, OpType::SCATTER, "tweed:scatter"};
const Kind kAllToAll{TWEED_ALL_TO_ALL, OpType::ALLTOALL, "tweed:all_to_all"};
const Kind kAllToAllBase{TWEED_ALL_TO_ALL, OpType::ALLTOALL_BASE, "tweed:all_to_all"};
const Kind kBarrier{TWEED_BARRIER, OpType::BARRIER, "tweed:barrier"};

template <class List>
auto& only(const char* title, List& list) {
  if (list.size() != 1) misuse(title, "expected one tensor per process, got " + std::to_string(list.size()));
  return list[0];
}

void check_numel(const char* title, const at::Tensor& large, const at::Tensor& small, int64_t ranks) {
  if (large.scalar_type() != small.scalar_type()) {
    misuse(title, std::string("input and output differ in dtype: ") + c10::toString(small.scalar_type()) + " and " +
                      c10::toString(large.scalar_type()));
  }
  if (large.numel() != small.numel() * ranks) {
    misuse(title, "expected " + std::to_string(ranks) + " times " + std::to_string(small.numel()) +
                      " elements in the larger tensor, one part per rank, got " + std::to_string(large.numel()));
  }
}

std::string in_words(const at::Tensor& tensor) {
  return std::to_string(tensor.numel()) + " elements of " + c10::toString(tensor.scalar_type());
}

// Empty splits mean equal parts; then the rows must divide by the number of ranks.
void check_splits(const char* title, const std::vector<int64_t>& splits, const at::Tensor& tensor, int ranks) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (splits.empty()) {
    if (rows % ranks == 0) return;
    misuse(title, "Tensor's dim 0 does not divide equally across group size: " + std::to_string(rows) + " rows, " +
                      std::to_string(ranks) + " ranks");
  }
  int64_t sum = 0;
  for (const int64_t part : splits) sum += part;
  if (splits.size() != static_cast<size_t>(ranks) || sum != rows ||
      std::any_of(splits.begin(), splits.end(), [](int64_t part) { return part < 0; })) {
    misuse(title, "Split sizes doesn't match total dim 0 size: " + std::to_string(splits.size()) + " splits with sum " +
                      std::to_string(sum) + " for " + std::to_string(ranks) + " ranks and " + std::to_string(rows) +
                      " rows");
  }
}

}  // namespace

Backend::Backend(GroupRef group, int rank, int size, c10::intrusive_ptr<Options> options,
                 Reconfigurable reconfigurable)
    : c10d::Backend(rank, size),
      group_(std::move(group)),
      options_(std::move(options)),
      reconfigurable_(std::move(reconfigurable)) {
  init();
}

const GroupRef& Backend::group() const {
  if (!group_) misuse("tweed", "the group has no members yet: call torch.distributed._reconfigure first");
  return group_;
}

Flight Backend::submit(Call& call, Millis timeout, bool blocking) {
  auto& request = call.request;
  request.blocking = blocking ? 1 : 0;
  request.timeout_ms = (timeout == c10d::kUnsetTimeout ? options_->timeout : timeout).count();
  request.inputs = call.inputs.data();
  request.n_inputs = call.inputs.size();
  request.outputs = call.outputs.data();
  request.n_outputs = call.outputs.size();
  return {group(), request, std::move(call.kept)};
}

void Backend::finish(Call& call, Millis timeout) {
  Flight flight = submit(call, timeout, true);
  if (auto error = flight.settle(flight.wait(kNoTimeout))) std::rethrow_exception(error);
}

WorkRef Backend::launch(Call& call, Manner manner) {
  ++sequence_;
  const bool blocking = !manner.async && !coalescing_;
  if (blocking && !at::hasCallbacks()) {  // the short way: nobody looks at a Work, so none is made
    finish(call, manner.timeout);
    return nullptr;
  }
  Flight flight = submit(call, manner.timeout, blocking);
  auto work = c10::make_intrusive<Operation>(std::move(flight), call.kind, rank_, sequence_);
  if (coalescing_) coalescing_->push_back(work);
  if (blocking) work->wait();
  return work;
}

void Backend::check_root(const char* title, int64_t root) const {
  if (root < 0 || root >= size_) {
    misuse(title, "the root must be a rank of the group, 0 to " + std::to_string(size_ - 1) + ", not " +
                      std::to_string(root));
  }
}

void Backend::check_list(const char* title, const TensorList& list, const at::Tensor& like) const {
  if (list.size() != static_cast<size_t>(size_)) {
    misuse(title, "expected " + std::to_string(size_) + " tensors, one per rank, got " + std::to_string(list.size()));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].scalar_type() == like.scalar_type() && list[i].numel() == like.numel()) continue;
    misuse(title, "tensor " + std::to_string(i) + " of the list has " + in_words(list[i]) + ", and the other tensor " +
                      in_words(like) + ": all are alike, at all ranks. Pad them, or call all_to_all, whose tensors may differ");
  }
}

WorkRef Backend::allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) {
  auto& tensor = only(kAllReduce.title, tensors);
  if (tensor.is_sparse()) return allreduce_sparse(tensors, opts);
  Call call(kAllReduce);
  call.describe(tensor);
  call.reduce(opts.reduceOp, tensor);
  call.inout(tensor);
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::allreduce_coalesced(TensorList& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  std::vector<WorkRef> works;
  c10d::AllreduceOptions each = opts;
  each.asyncOp = true;
  for (const auto& tensor : tensors) {
    TensorList one{tensor};
    works.push_back(allreduce(one, each));
  }
  return c10::make_intrusive<Together>(std::move(works), OpType::ALLREDUCE_COALESCED);
}

WorkRef Backend::broadcast(TensorList& tensors, const c10d::BroadcastOptions& opts) {
  auto& tensor = only(kBroadcast.title, tensors);
  check_root(kBroadcast.title, opts.rootRank);
  Call call(kBroadcast);
  call.describe(tensor);
  call.request.root = static_cast<uint32_t>(opts.rootRank);
  call.inout(tensor);
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::reduce(TensorList& tensors, const c10d::ReduceOptions& opts) {
  auto& tensor = only(kReduce.title, tensors);
  check_root(kReduce.title, opts.rootRank);
  Call call(kReduce);
  call.describe(tensor);
  call.reduce(opts.reduceOp, tensor);
  call.request.root = static_cast<uint32_t>(opts.rootRank);
  if (opts.rootRank == rank_) {
    call.inout(tensor);
  } else {
    call.in(tensor);
    call.kept.results.push_back(tensor);
  }
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::allgather(TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& opts) {
  auto& input = only(kAllGather.title, inputs);
  auto& parts = only(kAllGather.title, outputs);
  check_list(kAllGather.title, parts, input);
  Call call(kAllGather);
  call.describe(input);
  call.in(input);
  for (const auto& part : parts) call.out(part);
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  check_numel(kAllGatherBase.title, output, input, size_);
  Call call(kAllGatherBase);
  call.describe(input);
  call.in(input);
  call.out_parts(output, size_);
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::allgather_coalesced(TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& opts) {
  std::vector<WorkRef> works;
  if (outputs.size() != static_cast<size_t>(size_)) {
    misuse(kAllGather.title, "expected one list of outputs per rank, got " + std::to_string(outputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorList one{inputs[i]};
    TensorLists parts(1);
    for (const auto& of_rank : outputs) parts[0].push_back(of_rank.at(i));
    works.push_back(allgather(parts, one, {opts.timeout, true}));
  }
  return c10::make_intrusive<Together>(std::move(works), OpType::ALLGATHER_COALESCED);
}

WorkRef Backend::allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                                 const c10d::AllgatherOptions& opts) {
  if (outputs.size() != inputs.size()) misuse(kAllGatherBase.title, "expected as many outputs as inputs");
  std::vector<WorkRef> works;
  for (size_t i = 0; i < inputs.size(); ++i) {
    works.push_back(_allgather_base(outputs[i], inputs[i], {opts.timeout, true}));
  }
  return c10::make_intrusive<Together>(std::move(works), OpType::COALESCED);
}

WorkRef Backend::reduce_scatter(TensorList& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  auto& output = only(kReduceScatter.title, outputs);
  auto& parts = only(kReduceScatter.title, inputs);
  check_list(kReduceScatter.title, parts, output);
  Call call(kReduceScatter);
  call.describe(output);
  call.reduce(opts.reduceOp, output);
  for (const auto& part : parts) call.in(part);
  call.out(output);
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  check_numel(kReduceScatterBase.title, input, output, size_);
  Call call(kReduceScatterBase);
  call.describe(output);
  call.reduce(opts.reduceOp, output);
  call.in_parts(input, size_);
  call.out(output);
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                                 const c10d::ReduceScatterOptions& opts) {
  if (outputs.size() != inputs.size()) misuse(kReduceScatterBase.title, "expected as many outputs as inputs");
  std::vector<WorkRef> works;
  for (size_t i = 0; i < inputs.size(); ++i) {
    works.push_back(_reduce_scatter_base(outputs[i], inputs[i], {opts.reduceOp, opts.timeout, true}));
  }
  return c10::make_intrusive<Together>(std::move(works), OpType::COALESCED);
}

WorkRef Backend::gather(TensorLists& outputs, TensorList& inputs, const c10d::GatherOptions& opts) {
  auto& input = only(kGather.title, inputs);
  check_root(kGather.title, opts.rootRank);
  Call call(kGather);
  call.describe(input);
  call.request.root = static_cast<uint32_t>(opts.rootRank);
  call.in(input);
  if (opts.rootRank == rank_) {
    auto& parts = only(kGather.title, outputs);
    check_list(kGather.title, parts, input);
    for (const auto& part : parts) call.out(part);
  } else if (!outputs.empty()) {
    misuse(kGather.title, "requires empty output on non-root");
  }
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) {
  check_root(kGather.title, opts.rootRank);
  Call call(kGather);
  call.describe(input);
  call.request.root = static_cast<uint32_t>(opts.rootRank);
  call.in(input);
  if (opts.rootRank == rank_) {
    check_numel(kGather.title, output, input, size_);
    call.out_parts(output, size_);
  }
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::scatter(TensorList& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  auto& output = only(kScatter.title, outputs);
  check_root(kScatter.title, opts.rootRank);
  Call call(kScatter);
  call.describe(output);
  call.request.root = static_cast<uint32_t>(opts.rootRank);
  if (opts.rootRank == rank_) {
    auto& parts = only(kScatter.title, inputs);
    check_list(kScatter.title, parts, output);
    for (const auto& part : parts) call.in(part);
  } else if (!inputs.empty()) {
    misuse(kScatter.title, "requires empty input on non-root");
  }
  call.out(output);
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::alltoall(TensorList& outputs, TensorList& inputs, const c10d::AllToAllOptions& opts) {
  const auto ranks = static_cast<size_t>(size_);
  if (inputs.size() != ranks || outputs.size() != ranks) {
    misuse(kAllToAll.title, "expected " + std::to_string(ranks) + " inputs and outputs, one per rank, got " +
                                std::to_string(inputs.size()) + " and " + std::to_string(outputs.size()));
  }
  Call call(kAllToAll);
  call.describe(inputs[0]);
  for (const auto& input : inputs) call.in(input);
  for (const auto& output : outputs) call.out(output);
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                               std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  check_splits(kAllToAllBase.title, output_splits, output, size_);
  check_splits(kAllToAllBase.title, input_splits, input, size_);
  Call call(kAllToAllBase);
  call.describe(input);
  call.in_parts(input, size_, input_splits);
  call.out_parts(output, size_, output_splits);
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::barrier(const c10d::BarrierOptions& opts) {
  Call call(kBarrier);
  return launch(call, {opts.timeout, opts.asyncOp});
}

WorkRef Backend::endCoalescing() {
  auto works = std::exchange(coalescing_, std::nullopt).value_or(std::vector<WorkRef>{});
  return c10::make_intrusive<Together>(std::move(works), OpType::COALESCED);
}

}  // namespace tweed
