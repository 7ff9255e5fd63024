#include "worker/torch/collectives/process_group.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker/torch/collectives/counted_gloo.h"
#include "worker/torch/collectives/hierarchical_backend.h"
#include "worker/torch/collectives/nccl_plugin.h"
#include "worker/torch/collectives/shm_group.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/gathering_store.h"
#include "worker/torch/store/meeting.h"

namespace ddprun::worker {

MessageBackend::MessageBackend(c10::intrusive_ptr<c10d::Backend> gloo)
    : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

c10::intrusive_ptr<c10d::Work> MessageBackend::send(std::vector<at::Tensor>& tensors, int to,
                                                    int tag) {
  return Keep(gloo_->send(tensors, to, tag));
}

c10::intrusive_ptr<c10d::Work> MessageBackend::recv(std::vector<at::Tensor>& tensors, int from,
                                                    int tag) {
  return Keep(gloo_->recv(tensors, from, tag));
}

c10::intrusive_ptr<c10d::Work> MessageBackend::Keep(c10::intrusive_ptr<c10d::Work> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_) work->abort();
  works_.erase(
      std::remove_if(works_.begin(), works_.end(), [](const auto& weak) { return weak.expired(); }),
      works_.end());
  works_.emplace_back(work);
  return work;
}

void MessageBackend::abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  for (const auto& weak : works_) {
    if (const c10::intrusive_ptr<c10d::Work> work = weak.lock()) work->abort();
  }
}

namespace {

using c10d::ProcessGroup;
using c10d::ProcessGroupGloo;

// When all peers listen, a connection takes milliseconds. A peer that dies after it has published
// its address, and before it connects, costs five of these (c10d's tries).
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

HostLayout LayoutOf(const std::vector<Presence>& ranks) {
  std::map<uint32_t, std::vector<uint32_t>> by_host;
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) by_host[ranks[rank].host].push_back(rank);
  HostLayout layout;
  for (auto& [host, members] : by_host) layout.hosts.push_back(std::move(members));
  std::sort(layout.hosts.begin(), layout.hosts.end());  // rank 0's first
  return layout;
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

// Runs `make`, which owns all that it uses, and returns its result.
template <typename Make>
auto Connect(const ProcessGroupPlan& plan, GroupAbort::Sockets sockets, const Make& make) {
  if (plan.abort == nullptr) return make();
  const auto made = std::make_shared<decltype(make())>();
  plan.abort->Connect([=] { *made = make(); }, sockets);
  return *made;
}

struct GlooConnections {
  c10::intrusive_ptr<CountedGloo> backend;
  std::vector<std::string> words;  // of all ranks
};

// Params: word: sent to the other ranks.
GlooConnections ConnectGloo(const c10::intrusive_ptr<c10d::Store>& store, uint32_t rank,
                            size_t ranks, const ProcessGroupPlan& plan,
                            const std::string& word = "") {
  const auto rendezvous = c10::make_intrusive<RendezvousStore>(store, ranks, plan.start_timeout);
  auto options = ProcessGroupGloo::Options::create(kConnectTimeout);
  options->devices = GlooDevices(plan.bind_address);
  auto backend = Connect(plan, GroupAbort::Sockets::kGloo, [=] {
    return c10::make_intrusive<CountedGloo>(rendezvous, static_cast<int>(rank),
                                            static_cast<int>(ranks), options);
  });
  backend->setTimeout(absl::ToChronoMilliseconds(plan.collective_timeout));
  // A rank that has all its connections and ends at once would break ranks that still wait for
  // theirs. (torch's init_process_group waits as well: _store_based_barrier.)
  std::vector<std::string> words =
      GatherWords(*store, "connected", rank, ranks, word, plan.start_timeout);
  return {std::move(backend), std::move(words)};
}

c10::intrusive_ptr<ProcessGroup> CreateGloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const ProcessGroupPlan& plan) {
  return Wrap(store, plan, c10::DeviceType::CPU, ProcessGroup::BackendType::GLOO,
              ConnectGloo(store, plan.rank, plan.world_size, plan).backend);
}

// This host's ranks in shared memory. All ranks of the job get an error when one of them does.
absl::StatusOr<std::unique_ptr<ShmGroup>> CreateShmGroup(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupPlan& plan,
    const HostLayout& layout) {
  const uint32_t host = layout.HostOf(plan.rank);
  StorePart of_host(absl::StrCat("shm/", host), store);
  absl::StatusOr<std::unique_ptr<ShmGroup>> group =
      ShmGroup::Create(of_host, layout.LocalRankOf(plan.rank), layout.hosts[host]);
  if (layout.hosts.size() == 1) return group;
  // The ranks of a host agree, so the first rank of each host reports for all.
  std::vector<std::string> keys;
  for (size_t number = 0; number < layout.hosts.size(); ++number) {
    keys.push_back(absl::StrCat("shm/", number, "/answer"));
  }
  const bool speaks = layout.hosts[host][0] == plan.rank;
  const std::vector<std::string> answers = Gather(
      *store, speaks ? keys[host] : "", std::string(group.ok() ? "" : group.status().message()),
      keys, absl::FromChrono(store->getTimeout()));
  for (const std::string& answer : answers) {
    if (!answer.empty()) return absl::FailedPreconditionError(answer);
  }
  return group;
}

c10::intrusive_ptr<ProcessGroup> WrapHierarchical(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const ProcessGroupPlan& plan,
                                                  const HostLayout& layout,
                                                  std::unique_ptr<ShmGroup> local,
                                                  c10::intrusive_ptr<c10d::Backend> leaders) {
  HierarchicalBackend::Disposal dispose;  // none: the process ends soon
  if (plan.abort != nullptr) {
    dispose = [](c10::intrusive_ptr<c10d::Backend> group) {
      GroupAbort::DestroyBeside(std::move(group));
    };
  }
  return Wrap(store, plan, c10::DeviceType::CPU, ProcessGroup::BackendType::CUSTOM,
              c10::make_intrusive<HierarchicalBackend>(
                  plan.rank, layout, std::move(local), std::move(leaders),
                  absl::ToChronoMilliseconds(plan.collective_timeout), dispose));
}

c10::intrusive_ptr<ProcessGroup> WrapShm(const c10::intrusive_ptr<c10d::Store>& store,
                                         const ProcessGroupPlan& plan, const HostLayout& layout,
                                         std::unique_ptr<ShmGroup> local, bool hierarchical) {
  if (!hierarchical) {
    return Wrap(store, plan, c10::DeviceType::CPU, ProcessGroup::BackendType::CUSTOM,
                c10::make_intrusive<ShmBackend>(
                    std::move(local), absl::ToChronoMilliseconds(plan.collective_timeout)));
  }
  c10::intrusive_ptr<c10d::Backend> leaders;
  if (local->rank() == 0) {
    leaders = ConnectGloo(c10::make_intrusive<StorePart>("leaders", store),
                          layout.HostOf(plan.rank), layout.hosts.size(), plan)
                  .backend;
  }
  return WrapHierarchical(store, plan, layout, std::move(local), std::move(leaders));
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
  const auto backend = Connect(plan, GroupAbort::Sockets::kNccl, [=] {
    c10::intrusive_ptr<c10d::Backend> made;
    plugin.create_backend(arguments, &made);
    return made;
  });
  // The current device is a setting of each thread.
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(plan.device_index));
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  return Wrap(store, plan, c10::DeviceType::CUDA, ProcessGroup::BackendType::NCCL, backend);
}

struct Choice {
  BackendKind kind;
  std::string reason;
};

Choice ChooseForCpu(const HostLayout& layout, uint32_t world_size) {
  if (world_size == 1) return {BackendKind::kShm, "the only worker trains on the CPU"};
  const std::string all = absl::StrCat("all ", world_size, " workers");
  if (layout.hosts.size() == 1) {
    return {BackendKind::kShm, absl::StrCat(all, " are on one host and train on the CPU")};
  }
  if (layout.hosts.size() == world_size) {
    return {BackendKind::kGloo,
            absl::StrCat(all, " are on hosts of their own and train on the CPU")};
  }
  return {BackendKind::kHierarchical,
          absl::StrCat(all, " are on ", layout.hosts.size(),
                       " hosts and train on the CPU: shared memory on each, gloo between them")};
}

// Gloo for a process that outlives its groups: runs one collective at a time. If two ran at the
// same time and one failed, Gloo could receive data for a buffer that is gone; it would then stop
// reading from that connection, and the other collective would never notice its end.
absl::StatusOr<c10::intrusive_ptr<ProcessGroup>> CreateOrderedGloo(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupPlan& plan) {
  HostLayout alone;
  for (uint32_t rank = 0; rank < plan.world_size; ++rank) alone.hosts.push_back({rank});
  c10d::HashStore own;  // nobody else looks for it
  absl::StatusOr<std::unique_ptr<ShmGroup>> local = ShmGroup::Create(own, 0, {plan.rank});
  const GlooConnections gloo =
      ConnectGloo(c10::make_intrusive<StorePart>("leaders", store), plan.rank, plan.world_size,
                  plan, std::string(local.ok() ? "" : local.status().message()));
  const bool all_can = std::all_of(gloo.words.begin(), gloo.words.end(),
                                   [](const std::string& refusal) { return refusal.empty(); });
  if (all_can) return WrapHierarchical(store, plan, alone, *std::move(local), gloo.backend);
  return Wrap(store, plan, c10::DeviceType::CPU, ProcessGroup::BackendType::GLOO, gloo.backend);
}

// The backends for the CPU.
absl::StatusOr<c10::intrusive_ptr<ProcessGroup>> CreateForCpu(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupPlan& plan,
    const HostLayout& layout, std::string& reason) {
  Choice choice = {plan.backend, "it was asked for"};
  if (plan.backend == BackendKind::kAuto) choice = ChooseForCpu(layout, plan.world_size);
  if (choice.kind == BackendKind::kShm && layout.hosts.size() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("the backend 'shm' is for workers of one host, and these are on ",
                     layout.hosts.size(), "; use 'hierarchical', 'gloo' or 'auto'"));
  }
  if (choice.kind != BackendKind::kGloo) {
    const bool hierarchical = choice.kind == BackendKind::kHierarchical;
    absl::StatusOr<std::unique_ptr<ShmGroup>> local = CreateShmGroup(store, plan, layout);
    if (local.ok()) {
      reason = absl::StrCat(hierarchical ? "hierarchical" : "shm", ": ", choice.reason);
      return WrapShm(store, plan, layout, *std::move(local), hierarchical);
    }
    if (plan.backend != BackendKind::kAuto) return local.status();
    choice.reason = std::string(local.status().message());
  }
  reason = absl::StrCat("gloo: ", choice.reason);
  if (plan.abort != nullptr) return CreateOrderedGloo(store, plan);
  return CreateGloo(store, plan);
}

// Gloo writes to sockets that the peer may have closed. SIGPIPE's default action would end the
// process without a message; Python ignores the signal and gets an error.
void IgnoreBrokenPipes() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace

const char* BackendName(BackendKind kind) {
  switch (kind) {
    case BackendKind::kGloo:
      return "gloo";
    case BackendKind::kNccl:
      return "nccl";
    case BackendKind::kShm:
      return "shm";
    case BackendKind::kHierarchical:
      return "hierarchical";
    case BackendKind::kAuto:
      break;
  }
  return "auto";
}

absl::StatusOr<c10::intrusive_ptr<ProcessGroup>> CreateProcessGroup(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupPlan& plan,
    std::string* reason) {
  IgnoreBrokenPipes();
  NcclPlugin plugin;
  if (plan.backend == BackendKind::kNccl) {
    DDPRUN_ASSIGN_OR_RETURN(plugin, LoadNcclPlugin());
  }
  std::string why = "nccl: there are GPUs for all workers";
  absl::StatusOr<c10::intrusive_ptr<ProcessGroup>> group =
      CatchExceptions([&]() -> absl::StatusOr<c10::intrusive_ptr<ProcessGroup>> {
        const Presence mine = {.host = plan.host, .backend = BackendName(plan.backend)};
        DDPRUN_ASSIGN_OR_RETURN(
            const std::vector<Presence> ranks,
            MeetPeers(*store, plan.rank, plan.world_size, mine, plan.start_timeout));
        const HostLayout layout = LayoutOf(ranks);
        const auto group_store = c10::make_intrusive<StorePart>("group", store);
        if (plan.backend == BackendKind::kNccl) return CreateNccl(group_store, plan, plugin);
        return CreateForCpu(group_store, plan, layout, why);
      });
  if (reason != nullptr) *reason = std::move(why);
  if (group.ok() && plan.abort != nullptr) plan.abort->Add((*group)->getDefaultBackend());
  return group;
}

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> CreateMessageGroup(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupPlan& plan) {
  IgnoreBrokenPipes();
  return CatchExceptions([&]() -> absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> {
    const auto messages = c10::make_intrusive<MessageBackend>(
        ConnectGloo(store, plan.rank, plan.world_size, plan).backend);
    if (plan.abort != nullptr) plan.abort->Add(messages);
    return messages;
  });
}

}  // namespace ddprun::worker
