// A group that is made of some ranks of another one: by the way of every group, through Python.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

namespace tweed {

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& opts) {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  c10d::DistributedBackendOptions given;
  given.store = store;
  given.group_rank = static_cast<int>(mine - ranks.begin());
  given.group_size = static_cast<int>(ranks.size());
  given.timeout = opts->timeout;
  given.group_id = opts->group_name;
  const auto& world = options_->global_ranks_in_group;  // empty: this is the group of all
  for (const int rank : ranks) {
    given.global_ranks_in_group.push_back(world.empty() ? rank : static_cast<int64_t>(world.at(rank)));
  }
  const py::gil_scoped_acquire gil;
  const auto made = py::module_::import("tweed.torch.backend").attr("split")(std::move(given));
  return made.cast<c10::intrusive_ptr<c10d::Backend>>();
}

}  // namespace tweed
