// A group that is made anew of other members: they meet in reconfigure.py.
#include <variant>

#include <torch/csrc/utils/pybind.h>

#include "backend.h"

namespace tweed {

#ifdef C10D_BACKEND_HAS_RECONFIGURE
WorkRef Backend::reconfigure(const c10d::ReconfigureOptions& opts) {
  using Set = std::unordered_set<c10d::ReconfigureHandle>;
  const auto handles = std::visit(
      [](const auto& given) { return std::vector<std::string>(given.begin(), given.end()); }, opts.handles);
  const bool ordered = !std::holds_alternative<Set>(opts.handles);
  const py::gil_scoped_acquire gil;
  py::object timeout_s = py::none();
  if (opts.timeout) timeout_s = py::float_(static_cast<double>(opts.timeout->count()) / 1e3);
  const auto make = py::reinterpret_borrow<py::object>(reconfigurable_.make.get());
  const py::tuple made = make(opts.uuid, handles, ordered, timeout_s);
  const auto address = made[0].attr("address")().cast<uintptr_t>();
  group_ = std::make_shared<Group>(reconfigurable_.table, reinterpret_cast<tweed_group*>(address));
  rank_ = made[1].cast<int>();
  size_ = static_cast<int>(handles.size());
  sequence_ = 0;
  return c10::make_intrusive<Together>(std::vector<WorkRef>{}, c10d::OpType::UNKNOWN);
}
#endif

}  // namespace tweed
