#include "worker/torch/collectives/collective_backend.h"

#include <ATen/ops/view_as_real.h>

#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::worker {
namespace {

using c10d::OpType;
using Tensors = CollectiveBackend::Tensors;

const at::Tensor& OnlyOne(const Tensors& tensors) {
  if (tensors.size() == 1) return tensors[0];
  throw std::invalid_argument(
      absl::StrCat("a collective takes one tensor a process, not ", tensors.size()));
}

// Sums and averages of complex numbers are those of their parts.
at::Tensor RealParts(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

Tensors Flat(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

void CheckSameLength(size_t outputs, size_t inputs) {
  if (outputs == inputs) return;
  throw std::invalid_argument(absl::StrCat("a coalesced collective needs as many outputs (",
                                           outputs, ") as inputs (", inputs, ")"));
}

}  // namespace

CollectiveBackend::WorkPointer CollectiveBackend::Submit(OpType type, Steps steps, Tensors result,
                                                         std::chrono::milliseconds timeout) {
  struct State {
    Steps steps;
    size_t next = 0;
  };
  CountOne();
  const std::chrono::milliseconds limit = timeout == c10d::kUnsetTimeout ? timeout_ : timeout;
  auto state = std::make_shared<State>();
  state->steps = std::move(steps);
  CollectiveQueue::Task task;
  task.work = c10::make_intrusive<CollectiveWork>(getRank(), type, std::move(result));
  if (state->steps.empty() || state->steps[0].attempt) {
    task.attempt = [state] {
      for (; state->next < state->steps.size(); ++state->next) {
        const Step& step = state->steps[state->next];
        if (!step.attempt || !step.attempt()) return false;
      }
      return true;
    };
  }
  task.run = [state, limit] {
    for (; state->next < state->steps.size(); ++state->next) {
      state->steps[state->next].run(limit);
    }
  };
  WorkPointer work = task.work;
  queue_->Submit(std::move(task));
  return work;
}

void CollectiveBackend::CheckOneARank(const Tensors& tensors) const {
  if (tensors.size() == static_cast<size_t>(getSize())) return;
  throw std::invalid_argument(absl::StrCat("a list of tensors has ", tensors.size(),
                                           " instead of one for each of ", getSize(), " ranks"));
}

// The parts of `whole`, one a rank, each as long as `block`.
Tensors CollectiveBackend::BlocksOf(const at::Tensor& whole, const at::Tensor& block) const {
  if (!whole.is_contiguous() || whole.numel() != block.numel() * getSize()) {
    throw std::invalid_argument(absl::StrCat("a tensor for all ", getSize(),
                                             " ranks must be contiguous with ", getSize(), " x ",
                                             block.numel(), " elements; it has ", whole.numel()));
  }
  const at::Tensor flat = whole.view({-1});
  Tensors blocks;
  for (int64_t rank = 0; rank < getSize(); ++rank) {
    blocks.push_back(flat.narrow(0, rank * block.numel(), block.numel()));
  }
  return blocks;
}

CollectiveBackend::WorkPointer CollectiveBackend::allreduce(Tensors& tensors,
                                                            const c10d::AllreduceOptions& options) {
  return Submit(OpType::ALLREDUCE, {AllReduce(RealParts(OnlyOne(tensors)), options.reduceOp)},
                tensors, options.timeout);
}

CollectiveBackend::WorkPointer CollectiveBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Steps steps;
  for (const at::Tensor& tensor : tensors) {
    steps.push_back(AllReduce(RealParts(tensor), options.reduceOp));
  }
  return Submit(OpType::ALLREDUCE_COALESCED, std::move(steps), tensors, options.timeout);
}

CollectiveBackend::WorkPointer CollectiveBackend::reduce(Tensors& tensors,
                                                         const c10d::ReduceOptions& options) {
  const at::Tensor& mine = OnlyOne(tensors);
  const at::Tensor target = getRank() == options.rootRank ? mine : mine.clone();
  return Submit(OpType::REDUCE, {AllReduce(RealParts(target), options.reduceOp)}, tensors,
                options.timeout);
}

CollectiveBackend::WorkPointer CollectiveBackend::broadcast(Tensors& tensors,
                                                            const c10d::BroadcastOptions& options) {
  if (options.rootRank < 0 || options.rootRank >= getSize()) {
    throw std::invalid_argument(absl::StrCat("broadcast from rank ", options.rootRank,
                                             ": the group has ", getSize(), " ranks"));
  }
  return Submit(OpType::BROADCAST,
                {Broadcast(OnlyOne(tensors), static_cast<uint32_t>(options.rootRank))}, tensors,
                options.timeout);
}

CollectiveBackend::WorkPointer CollectiveBackend::allgather(std::vector<Tensors>& outputs,
                                                            Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  CheckSameLength(outputs.size(), 1);
  CheckOneARank(outputs[0]);
  return Submit(OpType::ALLGATHER, {AllGather(OnlyOne(inputs), outputs[0])}, outputs[0],
                options.timeout);
}

CollectiveBackend::WorkPointer CollectiveBackend::DoAllGatherTensor(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return Submit(OpType::_ALLGATHER_BASE, {AllGather(input, BlocksOf(output, input))}, {output},
                options.timeout);
}

// As c10d has it: one list a rank, each with all inputs' counterparts.
CollectiveBackend::WorkPointer CollectiveBackend::allgather_coalesced(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  CheckSameLength(outputs.size(), static_cast<size_t>(getSize()));
  for (const Tensors& list : outputs) CheckSameLength(list.size(), inputs.size());
  Steps steps;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors targets;
    for (const Tensors& list : outputs) targets.push_back(list[i]);
    steps.push_back(AllGather(inputs[i], targets));
  }
  return Submit(OpType::ALLGATHER_COALESCED, std::move(steps), Flat(outputs), options.timeout);
}

CollectiveBackend::WorkPointer CollectiveBackend::DoAllGatherTensors(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  CheckSameLength(outputs.size(), inputs.size());
  Steps steps;
  for (size_t i = 0; i < inputs.size(); ++i) {
    steps.push_back(AllGather(inputs[i], BlocksOf(outputs[i], inputs[i])));
  }
  return Submit(OpType::COALESCED, std::move(steps), outputs, options.timeout);
}

CollectiveBackend::WorkPointer CollectiveBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  CheckSameLength(1, inputs.size());
  CheckOneARank(inputs[0]);
  return Submit(OpType::REDUCE_SCATTER,
                {ReduceScatter(inputs[0], OnlyOne(outputs), options.reduceOp)}, outputs,
                options.timeout);
}

CollectiveBackend::WorkPointer CollectiveBackend::DoReduceScatterTensor(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return Submit(OpType::_REDUCE_SCATTER_BASE,
                {ReduceScatter(BlocksOf(input, output), output, options.reduceOp)}, {output},
                options.timeout);
}

CollectiveBackend::WorkPointer CollectiveBackend::DoReduceScatterTensors(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  CheckSameLength(outputs.size(), inputs.size());
  Steps steps;
  for (size_t i = 0; i < inputs.size(); ++i) {
    steps.push_back(ReduceScatter(BlocksOf(inputs[i], outputs[i]), outputs[i], options.reduceOp));
  }
  return Submit(OpType::COALESCED, std::move(steps), outputs, options.timeout);
}

CollectiveBackend::WorkPointer CollectiveBackend::barrier(const c10d::BarrierOptions& options) {
  return Submit(OpType::BARRIER, {Barrier()}, {}, options.timeout);
}

}  // namespace ddprun::worker
