// Operations in flight, and torch's view of them.
#pragma once

#include <chrono>
#include <mutex>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "host_memory.h"

namespace tweed {

using Millis = std::chrono::milliseconds;

// Owns an operation of the engine and the memory it works on. Dropped before its end, it lives on in the engine's
// callback until then, so memory is never taken from under an operation.
class Flight {
 public:
  Flight(GroupRef group, const tweed_request& request, Kept kept);
  Flight(Flight&& other) noexcept;
  Flight& operator=(Flight&&) = delete;
  ~Flight();

  tweed_status test() const { return group_->table->test(op_); }
  // Waits without the GIL; zero: as long as the operation's own deadline allows.
  // Raises DeadlineExceeded when `timeout` passes first, and what Python's signal handlers raise (Ctrl-C).
  tweed_status wait(Millis timeout) const;
  // After the end, once: staged results reach the caller. Returns the error, null if there is none.
  std::exception_ptr settle(tweed_status status);
  int source() const { return static_cast<int>(group_->table->source(op_)); }
  void on_end(tweed_callback callback, void* context) const { group_->table->on_end(op_, callback, context); }
  const Tensors& results() const { return kept_.results; }

 private:
  GroupRef group_;
  tweed_op* op_;
  Kept kept_;
};

// A Work over one operation.
class Operation final : public c10d::Work {
 public:
  Operation(Flight flight, const Kind& kind, int rank, uint64_t sequence);

  bool isCompleted() override;
  bool wait(Millis timeout = kNoTimeout) override;
  int sourceRank() const override { return flight_.source(); }
  std::vector<at::Tensor> result() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  // Made at the first call, and completed from an engine thread.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void settle(tweed_status status);
  void complete_future();
  static void ended(void* context);

  Flight flight_;
  const uint64_t sequence_;
  std::mutex settling_;
  bool settled_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A Work over several: ends when the last one has.
class Together final : public c10d::Work {
 public:
  Together(std::vector<c10::intrusive_ptr<c10d::Work>> works, c10d::OpType type);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(Millis timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override;
  uint64_t getSequencenumber() const override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace tweed
