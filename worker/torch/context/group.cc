#include "ddprun/group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/torch/collectives/checked_group.h"
#include "worker/torch/collectives/collectives.h"
#include "worker/torch/collectives/process_group.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/store/collective_check.h"

namespace ddprun {

struct Group::Implementation {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
};

absl::StatusOr<std::shared_ptr<Group>> Group::Create(Context& context) {
  Context::Implementation& parent = context.implementation();
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      absl::StrCat("groups/", parent.groups_created++), parent.store);
  auto implementation = std::make_unique<Implementation>();
  DDPRUN_ASSIGN_OR_RETURN(implementation->group, worker::CreateProcessGroup(store, parent.plan));
  if (parent.check != nullptr) {
    auto check = std::make_shared<worker::CollectiveCheck>(
        store, parent.plan.rank, parent.plan.world_size, parent.plan.collective_timeout);
    implementation->group = worker::CheckedGroup(store, implementation->group, std::move(check));
  }
  return std::shared_ptr<Group>(new Group(std::move(implementation)));
}

Group::Group(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

Group::~Group() = default;

uint32_t Group::rank() const { return static_cast<uint32_t>(implementation_->group->getRank()); }

uint32_t Group::world_size() const {
  return static_cast<uint32_t>(implementation_->group->getSize());
}

absl::Status Group::AllReduceSum(torch::Tensor& tensor) {
  return worker::AllReduceSum(*implementation_->group, tensor);
}

absl::Status Group::Broadcast(torch::Tensor& tensor, uint32_t source) {
  return worker::Broadcast(*implementation_->group, tensor, source);
}

absl::StatusOr<std::vector<torch::Tensor>> Group::AllGather(const torch::Tensor& tensor) {
  return worker::AllGather(*implementation_->group, tensor);
}

}  // namespace ddprun
