// One of four ranks that make groups of some of them; prints what their collectives gave.
//   group_probe          backend: DDPRUN_BACKEND
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ddprun/context.h"
#include "ddprun/group.h"
#include "ddprun/run_worker.h"

namespace {

using ddprun::Context;
using ddprun::Group;
using Ranks = std::vector<uint32_t>;

// A number from which every sum shows which ranks took part.
at::Tensor BitOf(uint32_t rank) { return at::full({1000}, 1 << rank, at::kInt); }

int ValueOf(const at::Tensor& tensor) {
  const int value = tensor[0].item<int>();
  return tensor.eq(value).all().item<bool>() ? value : -1;
}

// "name place/ranks sum broadcast gathered...": of a broadcast from the group's last rank.
absl::Status Use(Context& context, const std::string& name, const Ranks& ranks) {
  DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<Group> group, Group::Create(context, ranks));
  at::Tensor sum = BitOf(context.rank());
  DDPRUN_RETURN_IF_ERROR(group->AllReduceSum(sum));
  at::Tensor told = BitOf(context.rank());
  DDPRUN_RETURN_IF_ERROR(group->Broadcast(told, group->world_size() - 1));
  std::string line = absl::StrCat(name, " ", group->rank(), "/", group->world_size(), " ",
                                  ValueOf(sum), " ", ValueOf(told));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<at::Tensor> gathered,
                          group->AllGather(BitOf(context.rank())));
  for (const at::Tensor& each : gathered) absl::StrAppend(&line, " ", ValueOf(each));
  printf("%s\n", line.c_str());
  return absl::OkStatus();
}

absl::Status Train(int /*argc*/, char** /*argv*/) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::Create());
  const uint32_t rank = context->rank();
  printf("place %u %u %u\n", context->node_rank(), context->local_rank(),
         context->local_world_size());
  for (const Ranks& wrong : {Ranks{}, Ranks{rank, rank}, Ranks{rank, 4}, Ranks{(rank + 1) % 4}}) {
    const absl::Status refused = Group::Create(*context, wrong).status();
    printf("refused %s\n", refused.ToString().c_str());
  }
  const uint32_t row = rank / 2 * 2;
  DDPRUN_RETURN_IF_ERROR(Use(*context, "row", {row, row + 1}));
  DDPRUN_RETURN_IF_ERROR(Use(*context, "column", {rank % 2, rank % 2 + 2}));
  DDPRUN_RETURN_IF_ERROR(Use(*context, "row again", {row, row + 1}));
  DDPRUN_RETURN_IF_ERROR(Use(*context, "reversed", {3, 2, 1, 0}));
  if (rank == 2) DDPRUN_RETURN_IF_ERROR(Use(*context, "alone", {2}));
  // The others haven't made that one: their next groups of all are the same all the same.
  DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<Group> all, Group::Create(*context));
  at::Tensor sum = BitOf(rank);
  DDPRUN_RETURN_IF_ERROR(all->AllReduceSum(sum));
  printf("all %d\n", ValueOf(sum));
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Train); }
