#include "work.h"

#include <optional>

#include <sys/syscall.h>
#include <unistd.h>

#include <ATen/record_function.h>
#include <pybind11/pybind11.h>

namespace tweed {
namespace {

constexpr Millis kSlice{200};  // how late Ctrl-C may be noticed

void check_signals() {
  if (syscall(SYS_gettid) != getpid() || Py_IsInitialized() == 0) return;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

// Only for the profiler's title; without a profiler the base class need not look at it.
const char* title_of(const Kind& kind) {
  return at::hasCallbacks() ? kind.title : nullptr;
}

std::optional<std::vector<at::Tensor>> profiled(const Flight& flight) {
  if (!at::hasCallbacks()) return std::nullopt;
  return std::vector<at::Tensor>(flight.results().begin(), flight.results().end());
}

c10::intrusive_ptr<c10::ivalue::Future> tensors_future(const std::vector<at::Tensor>& results) {
  std::vector<c10::Device> devices;
  for (const auto& tensor : results) {
    const auto device = tensor.device();
    if (!device.is_cpu() && std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(device);
    }
  }
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

}  // namespace

Flight::Flight(GroupRef group, const tweed_request& request, Kept kept)
    : group_(std::move(group)),
      op_(group_->table->submit(group_->raw, &request)),
      kept_(std::move(kept)) {}

Flight::Flight(Flight&& other) noexcept
    : group_(std::move(other.group_)),
      op_(std::exchange(other.op_, nullptr)),
      kept_(std::move(other.kept_)) {}

Flight::~Flight() {
  if (op_ == nullptr) return;
  const WithoutGil without_gil;
  if (test() != TWEED_PENDING) {
    group_->table->release(op_);
    return;
  }
  auto* left = new Flight(std::move(*this));
  left->on_end(
      [](void* context) {
        const std::unique_ptr<Flight> flight(static_cast<Flight*>(context));
        flight->settle(flight->test());
      },
      left);
}

tweed_status Flight::wait(Millis timeout) const {
  std::optional<pybind11::gil_scoped_release> released;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) released.emplace();
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto end = timeout > kNoTimeout ? std::optional(now() + timeout) : std::nullopt;
  for (;;) {
    const auto left = end ? std::chrono::ceil<Millis>(*end - now()) : kSlice;
    const tweed_status status = group_->table->wait(op_, std::clamp(left, Millis(0), kSlice).count());
    if (status != TWEED_PENDING) return status;
    check_signals();
    if (end && now() >= *end) {
      throw Error(TWEED_DEADLINE, "the operation has not ended within the " + std::to_string(timeout.count()) +
                                      " ms given to wait(); it goes on, and may be waited for again");
    }
  }
}

std::exception_ptr Flight::settle(tweed_status status) {
  if (status != TWEED_OK) {
    kept_.back.clear();
    kept_.alive.clear();
    return std::make_exception_ptr(Error(status, group_->table->message(op_)));
  }
  try {
    kept_.settle();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

Operation::Operation(Flight flight, const Kind& kind, int rank, uint64_t sequence)
    : Work(rank, kind.type, title_of(kind), profiled(flight)), flight_(std::move(flight)), sequence_(sequence) {}

bool Operation::isCompleted() {
  const tweed_status status = flight_.test();
  if (status == TWEED_PENDING) return false;
  settle(status);
  return true;
}

bool Operation::wait(Millis timeout) {
  settle(flight_.wait(timeout));
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

std::vector<at::Tensor> Operation::result() {
  return {flight_.results().begin(), flight_.results().end()};
}

void Operation::settle(tweed_status status) {
  const std::lock_guard<std::mutex> lock(settling_);
  if (settled_) return;
  finish(flight_.settle(status));
  settled_ = true;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture() {
  {
    const std::lock_guard<std::mutex> lock(settling_);
    if (future_) return future_;
    future_ = tensors_future(result());
  }
  // The callback's reference keeps this Work, and so the memory, until the end.
  auto self = c10::intrusive_ptr<Operation>::unsafe_reclaim_from_nonowning(this);
  flight_.on_end(&Operation::ended, self.release());
  return future_;
}

void Operation::ended(void* context) {
  const auto self = c10::intrusive_ptr<Operation>::reclaim(static_cast<Operation*>(context));
  self->settle(self->flight_.test());
  self->complete_future();
}

void Operation::complete_future() {
  if (exception_) {
    future_->setError(exception_);
  } else {
    future_->markCompleted(c10::IValue(result()));
  }
}

Together::Together(std::vector<c10::intrusive_ptr<c10d::Work>> works, c10d::OpType type)
    : Work(-1, type), works_(std::move(works)) {}

bool Together::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

bool Together::isSuccess() const {
  return exception() == nullptr;
}

std::exception_ptr Together::exception() const {
  for (const auto& work : works_) {
    if (auto found = work->exception()) return found;
  }
  return nullptr;
}

bool Together::wait(Millis timeout) {
  for (const auto& work : works_) work->wait(timeout);
  return true;
}

std::vector<at::Tensor> Together::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    for (auto& tensor : work->result()) all.push_back(std::move(tensor));
  }
  return all;
}

uint64_t Together::getSequencenumber() const {
  return works_.empty() ? 0 : works_.back()->getSequencenumber();
}

c10::intrusive_ptr<c10::ivalue::Future> Together::getFuture() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> parts(c10::FutureType::create(
      c10::ListType::create(c10::TensorType::get())));
  for (const auto& work : works_) parts.push_back(work->getFuture());
  auto results = result();
  auto whole = tensors_future(results);
  c10::collectAll(parts)->addCallback([whole, results = std::move(results), works = works_](auto& all) {
    auto error = all.hasError() ? all.exception_ptr() : nullptr;
    for (const auto& work : works) error = error ? error : work->exception();
    error ? whole->setError(error) : whole->markCompleted(c10::IValue(results));
  });
  return whole;
}

}  // namespace tweed
