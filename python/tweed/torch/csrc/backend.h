// The backend "tweed": translates c10d's calls into requests to the engine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "host_memory.h"
#include "work.h"

namespace tweed {

// What `reconfigure` needs: this process's handle, and `Reconfigurable.make` of reconfigure.py.
struct Reconfigurable {
  const tweed_table* table;
  std::string handle;
  std::shared_ptr<PyObject> make;
};

using WorkRef = c10::intrusive_ptr<c10d::Work>;
using TensorList = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;

// Overrides the names that every torch from 2.10 on knows; from 2.14 on the newer names
// (all_gather_single and so on) forward to them.
//
// A call with `asyncOp == false` waits here and returns null, as torch allows since 2.8: no Work is made, and the
// engine learns that nobody else need be woken.
class Backend final : public c10d::Backend {
 public:
  // `group` is null before the members have met by `reconfigure`.
  Backend(GroupRef group, int rank, int size, c10::intrusive_ptr<Options> options, Reconfigurable reconfigurable);

  const std::string getBackendName() const override { return "tweed"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(Millis timeout) override { options_->timeout = timeout; }

  WorkRef allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  WorkRef allreduce_sparse(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  WorkRef allreduce_coalesced(TensorList& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkRef broadcast(TensorList& tensors, const c10d::BroadcastOptions& opts) override;
  WorkRef reduce(TensorList& tensors, const c10d::ReduceOptions& opts) override;

  WorkRef allgather(TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& opts) override;
  WorkRef _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkRef allgather_coalesced(TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& opts) override;
  WorkRef allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                          const c10d::AllgatherOptions& opts) override;

  WorkRef reduce_scatter(TensorList& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkRef _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkRef reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;

  WorkRef gather(TensorLists& outputs, TensorList& inputs, const c10d::GatherOptions& opts) override;
  // Since 2.14; an ordinary member before.
  virtual WorkRef gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts);
  WorkRef scatter(TensorList& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;

  WorkRef alltoall(TensorList& outputs, TensorList& inputs, const c10d::AllToAllOptions& opts) override;
  WorkRef alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;

  WorkRef send(TensorList& tensors, int peer, int tag) override;
  WorkRef recv(TensorList& tensors, int peer, int tag) override;
  WorkRef recvAnysource(TensorList& tensors, int tag) override;

  WorkRef barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool all_ranks) override;

  bool supportsSplitting() const override { return true; }
  // A group of some of this one's ranks, for those among them; null for the others.
  virtual c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::vector<int>& ranks,
                                                  const c10::intrusive_ptr<Options>& opts);

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return true; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override { return reconfigurable_.handle; }
  // Not beside other calls of this group, as all that changes a process group.
  WorkRef reconfigure(const c10d::ReconfigureOptions& opts) override;
#endif

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { coalescing_.emplace(); }
  WorkRef endCoalescing() override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }

  bool supportsTensorAlloc(c10::DeviceIndex device) override { return device < 0; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  void abort() override {
    if (group_) group_->table->abort(group_->raw, "abort() was called on the process group");
  }
  // What other ranks still need is finished by the engine; memory it lent lives as long as its tensors.
  void shutdown() override {}

 private:
  // How a call wants to be carried out.
  struct Manner {
    Millis timeout;
    bool async;
  };
  WorkRef launch(Call& call, Manner manner);
  // Submits, waits, and raises what went wrong.
  void finish(Call& call, Millis timeout);
  WorkRef point_to_point(const Kind& kind, at::Tensor& tensor, uint32_t peer, uint64_t tag);
  Flight submit(Call& call, Millis timeout, bool blocking);
  TensorList gather_uneven(const at::Tensor& mine, at::IntArrayRef rows);
  void check_root(const char* title, int64_t root) const;
  void check_list(const char* title, const TensorList& list, const at::Tensor& like) const;

  // Raises where there are no members yet.
  const GroupRef& group() const;

  GroupRef group_;
  const c10::intrusive_ptr<Options> options_;
  const Reconfigurable reconfigurable_;
  uint64_t sequence_ = 0;
  std::optional<std::vector<WorkRef>> coalescing_;
};

}  // namespace tweed
