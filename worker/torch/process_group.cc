#include "worker/torch/process_group.h"

#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker/torch/exception_status.h"
#include "worker/torch/nccl_plugin.h"

namespace ddprun::worker {
namespace {

using c10d::ProcessGroup;
using c10d::ProcessGroupGloo;

// With all peers present a connection takes milliseconds; a peer that dies between its address and
// its connection costs five of these.
constexpr std::chrono::seconds kConnectTimeout(5);

using Devices = std::vector<std::shared_ptr<::gloo::transport::Device>>;

Devices GlooDevices(const std::string& bind_address) {
  Devices devices;
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces != nullptr && *interfaces != '\0') {
    const std::vector<std::string> names = absl::StrSplit(interfaces, ',');
    for (const std::string& name : names) {
      devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
    }
  } else if (!bind_address.empty()) {
    devices.push_back(ProcessGroupGloo::createDeviceForHostname(bind_address));
  } else {
    devices.push_back(ProcessGroupGloo::createDefaultDevice());
  }
  return devices;
}

// Every rank says that it is there and waits for all others.
void MeetPeers(c10d::Store& store, const ProcessGroupPlan& plan) {
  std::vector<std::string> keys;
  for (uint32_t rank = 0; rank < plan.world_size; ++rank)
    keys.push_back(absl::StrCat("here/", rank));
  store.set(keys[plan.rank], std::string("1"));
  store.wait(keys, absl::ToChronoMilliseconds(plan.start_timeout));
}

c10::intrusive_ptr<ProcessGroup> Wrap(const c10::intrusive_ptr<c10d::Store>& store,
                                      const ProcessGroupPlan& plan, c10::DeviceType device,
                                      ProcessGroup::BackendType type,
                                      const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto group = c10::make_intrusive<ProcessGroup>(store, static_cast<int>(plan.rank),
                                                 static_cast<int>(plan.world_size));
  group->setDefaultBackend(type);
  group->setBackend(device, type, backend);
  return group;
}

c10::intrusive_ptr<ProcessGroup> CreateGloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const ProcessGroupPlan& plan) {
  auto options = ProcessGroupGloo::Options::create(kConnectTimeout);
  options->devices = GlooDevices(plan.bind_address);
  auto backend = c10::make_intrusive<ProcessGroupGloo>(store, static_cast<int>(plan.rank),
                                                       static_cast<int>(plan.world_size), options);
  backend->setTimeout(absl::ToChronoMilliseconds(plan.collective_timeout));
  return Wrap(store, plan, c10::DeviceType::CPU, ProcessGroup::BackendType::GLOO, backend);
}

c10::intrusive_ptr<ProcessGroup> CreateNccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            const ProcessGroupPlan& plan,
                                            const NcclPlugin& plugin) {
  const NcclPluginArguments arguments = {
      .store = store,
      .rank = static_cast<int>(plan.rank),
      .world_size = static_cast<int>(plan.world_size),
      .device_index = plan.device_index,
      .timeout = absl::ToChronoMilliseconds(plan.collective_timeout)};
  c10::intrusive_ptr<c10d::Backend> backend;
  plugin.create_backend(arguments, &backend);
  return Wrap(store, plan, c10::DeviceType::CUDA, ProcessGroup::BackendType::NCCL, backend);
}

}  // namespace

absl::StatusOr<c10::intrusive_ptr<ProcessGroup>> CreateProcessGroup(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupPlan& plan) {
  NcclPlugin plugin;
  if (plan.backend == BackendKind::kNccl) {
    DDPRUN_ASSIGN_OR_RETURN(plugin, LoadNcclPlugin());
  }
  return CatchExceptions([&]() -> absl::StatusOr<c10::intrusive_ptr<ProcessGroup>> {
    MeetPeers(*store, plan);
    const auto group_store = c10::make_intrusive<c10d::PrefixStore>("group", store);
    if (plan.backend == BackendKind::kNccl) return CreateNccl(group_store, plan, plugin);
    return CreateGloo(group_store, plan);
  });
}

}  // namespace ddprun::worker
