#include "ddprun/group.h"

#include <algorithm>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "worker/torch/collectives/checked_group.h"
#include "worker/torch/collectives/collectives.h"
#include "worker/torch/collectives/process_group.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/store/collective_check.h"
#include "worker/torch/store/gathering_store.h"

namespace ddprun {

struct Group::Implementation {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
};

namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;
using GroupPointer = c10::intrusive_ptr<c10d::ProcessGroup>;

StorePointer StoreOf(const Context::Implementation& context, const std::string& name) {
  return c10::make_intrusive<worker::StorePart>(name, context.store);
}

// Meets the group's other ranks through `store`.
absl::StatusOr<GroupPointer> Connect(const Context::Implementation& context,
                                     const StorePointer& store,
                                     const worker::ProcessGroupPlan& plan) {
  DDPRUN_ASSIGN_OR_RETURN(const GroupPointer group, worker::CreateProcessGroup(store, plan));
  if (context.check == nullptr) return group;
  return worker::CheckedGroup(store, group,
                              std::make_shared<worker::CollectiveCheck>(
                                  store, plan.rank, plan.world_size, plan.collective_timeout));
}

// The place of `rank` among the ranks of a group.
absl::StatusOr<uint32_t> PlaceIn(const std::vector<uint32_t>& ranks, uint32_t rank,
                                 uint32_t world_size) {
  const std::string named = absl::StrCat("the group of ranks [", absl::StrJoin(ranks, ", "), "]");
  const std::set<uint32_t> each(ranks.begin(), ranks.end());
  if (each.size() != ranks.size()) {
    return absl::InvalidArgumentError(absl::StrCat(named, " has a rank twice"));
  }
  if (!each.empty() && *each.rbegin() >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat(named, " has rank ", *each.rbegin(),
                                                   ", and there are ranks 0 to ", world_size - 1));
  }
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        named, " is made by rank ", rank, ", which isn't in it: only its own ranks make it"));
  }
  return static_cast<uint32_t>(found - ranks.begin());
}

}  // namespace

absl::StatusOr<std::shared_ptr<Group>> Group::Create(Context& context) {
  Context::Implementation& parent = context.implementation();
  auto implementation = std::make_unique<Implementation>();
  DDPRUN_ASSIGN_OR_RETURN(
      implementation->group,
      Connect(parent, StoreOf(parent, absl::StrCat("groups/", parent.groups_created++)),
              parent.plan));
  return std::shared_ptr<Group>(new Group(std::move(implementation)));
}

absl::StatusOr<std::shared_ptr<Group>> Group::Create(Context& context,
                                                     const std::vector<uint32_t>& ranks) {
  Context::Implementation& parent = context.implementation();
  worker::ProcessGroupPlan plan = parent.plan;
  DDPRUN_ASSIGN_OR_RETURN(plan.rank, PlaceIn(ranks, parent.plan.rank, parent.plan.world_size));
  plan.world_size = static_cast<uint32_t>(ranks.size());
  const std::string members = absl::StrJoin(ranks, ",");
  const uint64_t number = parent.subgroups_created[members]++;
  auto implementation = std::make_unique<Implementation>();
  DDPRUN_ASSIGN_OR_RETURN(
      implementation->group,
      Connect(parent, StoreOf(parent, absl::StrCat("subgroups/", members, "/", number)), plan));
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
