// What is not a single collective: point to point, the monitored barrier, sparse sums, and lent memory.
#include "backend.h"

#include <limits>

namespace tweed {
namespace {

using c10d::OpType;

const Kind kSend{TWEED_SEND, OpType::SEND, "tweed:send"};
const Kind kRecv{TWEED_RECV, OpType::RECV, "tweed:recv"};
const Kind kRecvAny{TWEED_RECV, OpType::RECVANYSOURCE, "tweed:recvAnySource"};
const Kind kSparse{TWEED_ALL_TO_ALL, OpType::_ALLREDUCE_SPARSE, "tweed:sparse_all_reduce"};
const Kind kSizes{TWEED_ALL_GATHER, OpType::_ALLREDUCE_SPARSE, "tweed:sparse_all_reduce"};

constexpr uint32_t kAnyRank = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kHere = 0xFFFF'FFF1, kPassed = 0xFFFF'FFF2;  // tags of users are not negative

at::Tensor& one_contiguous(const char* title, TensorList& list) {
  if (list.size() != 1) misuse(title, "expected one tensor, got " + std::to_string(list.size()));
  if (!list[0].is_contiguous()) misuse(title, "input tensor has to be contiguous; pass tensor.contiguous()");
  return list[0];
}

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

WorkRef Backend::point_to_point(const Kind& kind, at::Tensor& tensor, uint32_t peer, uint64_t tag) {
  Call call(kind);
  call.describe(tensor);
  call.request.root = peer;
  call.request.tag = tag;
  kind.operation == TWEED_SEND ? call.in(tensor) : call.out(tensor);
  auto flight = submit(call, c10d::kUnsetTimeout, false);
  auto work = c10::make_intrusive<Operation>(std::move(flight), kind, rank_, sequence_);
  if (coalescing_) coalescing_->push_back(work);
  return work;
}

WorkRef Backend::send(TensorList& tensors, int peer, int tag) {
  check_root(kSend.title, peer);
  return point_to_point(kSend, one_contiguous(kSend.title, tensors), static_cast<uint32_t>(peer), static_cast<uint32_t>(tag));
}

WorkRef Backend::recv(TensorList& tensors, int peer, int tag) {
  check_root(kRecv.title, peer);
  return point_to_point(kRecv, one_contiguous(kRecv.title, tensors), static_cast<uint32_t>(peer), static_cast<uint32_t>(tag));
}

WorkRef Backend::recvAnysource(TensorList& tensors, int tag) {
  return point_to_point(kRecvAny, one_contiguous(kRecvAny.title, tensors), kAnyRank, static_cast<uint32_t>(tag));
}

// Rank 0 hears from everybody, then lets everybody go; so it can say who did not come.
void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool all_ranks) {
  const Millis timeout = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  if (timeout <= kNoTimeout) {
    throw Error(TWEED_DEADLINE, "tweed:monitored_barrier: Rank " + std::to_string(rank_) +
                                    " timed out in monitoredBarrier after 0 ms: no time was given");
  }
  const auto message = [] { return at::zeros({1}, at::kByte); };
  if (rank_ != 0) {
    at::Tensor here = message(), passed = message();
    try {
      point_to_point(kSend, here, 0, kHere)->wait(timeout);
      point_to_point(kRecv, passed, 0, kPassed)->wait(timeout);
    } catch (Error& error) {
      throw Error(error.status(), "Rank " + std::to_string(rank_) + " successfully reached monitoredBarrier, but " +
                                      "received errors while waiting for send/recv from rank 0: " + error.what());
    }
    return;
  }
  std::vector<WorkRef> arrivals;
  for (int rank = 1; rank < size_; ++rank) {
    at::Tensor here = message();
    arrivals.push_back(point_to_point(kRecv, here, rank, kHere));
  }
  const auto end = std::chrono::steady_clock::now() + timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < size_ && (missing.empty() || all_ranks); ++rank) {
    const auto left = std::chrono::ceil<Millis>(end - std::chrono::steady_clock::now());
    try {
      arrivals[rank - 1]->wait(std::max(left, Millis(1)));
    } catch (Error&) {
      missing.push_back(rank);
    }
  }
  if (!missing.empty()) {
    throw Error(TWEED_DEADLINE, "tweed:monitored_barrier: Rank" + std::string(missing.size() > 1 ? "s " : " ") +
                                    joined(missing) + " failed to pass monitoredBarrier in " +
                                    std::to_string(timeout.count()) + " ms");
  }
  for (int rank = 1; rank < size_; ++rank) {
    at::Tensor passed = message();
    point_to_point(kSend, passed, rank, kPassed)->wait(timeout);
  }
}

// Every rank's `rows[r]` rows of what is [rows, ...] here: an all-gather of uneven parts.
TensorList Backend::gather_uneven(const at::Tensor& mine, at::IntArrayRef rows) {
  Call call(kSparse);
  call.describe(mine);
  TensorList parts;
  for (const int64_t count : rows) {
    auto sizes = mine.sizes().vec();
    sizes[0] = count;
    parts.push_back(at::empty(sizes, mine.options()));
    call.in(mine);
    call.out(parts.back());
  }
  finish(call, c10d::kUnsetTimeout);
  return parts;
}

// Sums by gathering indices and values, as Gloo does. Waits here: the sizes must be known before the values can go.
WorkRef Backend::allreduce_sparse(TensorList& tensors, const c10d::AllreduceOptions& opts) {
  auto& tensor = tensors.at(0);
  if (opts.reduceOp.op_ != c10d::ReduceOp::SUM) misuse(kSparse.title, "sparse tensors can only be summed");
  const at::AutoDispatchBelowADInplaceOrView raw;
  const auto mine = tensor.coalesce().to(at::kCPU);
  auto counts = at::empty({size_}, at::kLong);
  auto count = at::full({1}, mine._nnz(), at::kLong);
  Call sizes(kSizes);
  sizes.describe(count);
  sizes.in(count);
  sizes.out_parts(counts, size_);
  finish(sizes, opts.timeout);
  const at::IntArrayRef rows(counts.data_ptr<int64_t>(), size_);
  const auto indices = gather_uneven(mine.indices().t().contiguous(), rows);
  const auto values = gather_uneven(mine.values().contiguous(), rows);
  const auto sum = at::sparse_coo_tensor(at::cat(indices).t(), at::cat(values), tensor.sizes(), mine.options());
  tensor.copy_(sum.coalesce());
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(tensors));
  return c10d::Work::create_from_future(future);
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  const auto bytes = static_cast<uint64_t>(size) * c10::elementSize(c10::typeMetaToScalarType(options.dtype()));
  void* memory = group()->table->alloc(group_->raw, bytes);
  if (memory == nullptr) {
    TORCH_WARN_ONCE("tweed: no shared memory is left; this tensor is in ordinary memory, which peers read more slowly");
    return at::empty({size}, options);
  }
  const auto give_back = [group = group_](void* data) {
    const WithoutGil without_gil;
    group->table->free(group->raw, data);
  };
  return at::from_blob(memory, {size}, give_back, options);
}

}  // namespace tweed
