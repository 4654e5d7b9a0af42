// The extension module: makes backends. One translation unit, as most of its compile time goes into torch's headers.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.cpp"
#include "host_memory.cpp"
#include "point_to_point.cpp"
#include "reconfigure.cpp"
#include "split.cpp"
#include "errors.cpp"
#include "work.cpp"

namespace {

c10::intrusive_ptr<c10d::Backend> create(uintptr_t table_address, uintptr_t group_address, int rank, int size,
                                         const c10d::DistributedBackendOptions& given, std::string handle,
                                         py::object make) {
  const auto* table = reinterpret_cast<const tweed_table*>(table_address);
  if (table->abi != TWEED_ABI) {
    tweed::misuse("tweed", "the engine speaks version " + std::to_string(table->abi) + " of its table, this module " +
                               std::to_string(TWEED_ABI) + "; reinstall tweed");
  }
  auto* raw = reinterpret_cast<tweed_group*>(group_address);
  auto group = raw == nullptr ? nullptr : std::make_shared<tweed::Group>(table, raw);
  auto options = c10::make_intrusive<c10d::Backend::Options>(
      "tweed", std::chrono::duration_cast<std::chrono::milliseconds>(given.timeout));
  options->group_name = given.group_id;
  options->global_ranks_in_group.assign(given.global_ranks_in_group.begin(), given.global_ranks_in_group.end());
  tweed::Reconfigurable reconfigurable{table, std::move(handle), tweed::shared(make.release().ptr())};
  return c10::make_intrusive<tweed::Backend>(std::move(group), rank, size, std::move(options),
                                             std::move(reconfigurable));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  tweed::register_errors();
  module.def("create", &create, "A c10d backend over the engine's group; addresses come from tweed._core.");
}
