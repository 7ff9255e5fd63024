#include "worker/torch/collectives/debug_group.h"

#include <unistd.h>

#include <torch/csrc/distributed/c10d/debug.h>
#include <algorithm>
#include <array>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "worker/torch/store/gathering_store.h"

namespace ddprun::worker {
namespace {

// c10d::Logger casts a backend with the name "gloo" to ProcessGroupGloo, and LibTorch's wrapper has
// the name of the backend that it wraps.
class DebugBackend : public c10d::ProcessGroupWrapper {
 public:
  using ProcessGroupWrapper::ProcessGroupWrapper;
  const std::string getBackendName() const override {
    return absl::StrCat("checked ", ProcessGroupWrapper::getBackendName());
  }
};

}  // namespace

absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> DebugGroup(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, const ProcessGroupPlan& plan) {
  c10d::setDebugLevelFromEnvironment();
  if (c10d::debug_level() != c10d::DebugLevel::Detail) return group;
  ProcessGroupPlan comparing = plan;
  comparing.backend = BackendKind::kGloo;
  DDPRUN_ASSIGN_OR_RETURN(
      const c10::intrusive_ptr<c10d::ProcessGroup> helper,
      CreateProcessGroup(c10::make_intrusive<StorePart>("debug", store), comparing));
  auto wrapped = c10::make_intrusive<c10d::ProcessGroup>(store, group->getRank(), group->getSize());
  wrapped->setDefaultBackend(group->getBackendType());
  for (const c10::Device& device : group->getDeviceTypes()) {
    wrapped->setBackend(device.type(), group->getBackendType(),
                        c10::make_intrusive<DebugBackend>(group->getBackend(device.type()),
                                                          helper->getDefaultBackend()));
  }
  return wrapped;
}

std::string CommunicationVariables() {
  static constexpr std::array<absl::string_view, 6> kPrefixes = {
      "NCCL_",      "TORCH_NCCL_", "GLOO_", "TORCH_DISTRIBUTED_DEBUG=", "TORCH_CPP_LOG_LEVEL=",
      "TORCH_GLOO_"};
  // torchrun and ddprun give the first to every worker; the others are LeaveNcclErrorsAlone()'s.
  static constexpr std::array<absl::string_view, 5> kNobodysChoice = {
      "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
      "TORCH_NCCL_DUMP_ON_TIMEOUT=0", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=0",
      "TORCH_NCCL_ENABLE_MONITORING=0"};
  std::vector<std::string> found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const absl::string_view text = *variable;
    if (std::count(kNobodysChoice.begin(), kNobodysChoice.end(), text) > 0) continue;
    if (std::any_of(kPrefixes.begin(), kPrefixes.end(),
                    [text](absl::string_view prefix) { return absl::StartsWith(text, prefix); })) {
      found.emplace_back(text);
    }
  }
  std::sort(found.begin(), found.end());
  return absl::StrJoin(found, " ");
}

}  // namespace ddprun::worker
