#include "worker/torch/collectives/shm_backend.h"

#include <utility>

namespace ddprun::worker {
namespace {

// Larger tensors go to the queue's thread at once, beside the backward pass, because copying them
// takes longer than waking a thread.
constexpr size_t kTriedBytes = size_t{512} << 10;

}  // namespace

ShmBackend::ShmBackend(std::unique_ptr<ShmGroup> group, std::chrono::milliseconds timeout)
    : CollectiveBackend(static_cast<int>(group->rank()), static_cast<int>(group->ranks()), timeout),
      group_(std::move(group)) {}

ShmBackend::~ShmBackend() {
  group_->Leave();
  StopQueue();
}

CollectiveBackend::Step ShmBackend::ToStep(shm::Call call, Tensors kept, size_t bytes) {
  struct State {
    shm::Call call;
    Tensors kept;
  };
  auto state = std::make_shared<State>();
  state->call = std::move(call);
  state->kept = std::move(kept);
  Step step;
  if (bytes <= kTriedBytes) {
    step.attempt = [this, state] { return group_->Try(state->call); };
  }
  step.run = [this, state](std::chrono::milliseconds timeout) {
    group_->Finish(state->call, timeout);
  };
  return step;
}

CollectiveBackend::Step ShmBackend::AllReduce(const at::Tensor& tensor,
                                              const c10d::ReduceOp& operation) {
  return ToStep(ShmGroup::AllReduce(tensor, operation), {tensor}, tensor.nbytes());
}

CollectiveBackend::Step ShmBackend::Broadcast(const at::Tensor& tensor, uint32_t root) {
  return ToStep(ShmGroup::Broadcast(tensor, root), {tensor}, tensor.nbytes());
}

CollectiveBackend::Step ShmBackend::AllGather(const at::Tensor& input, const Tensors& outputs) {
  Tensors kept = outputs;
  kept.push_back(input);
  return ToStep(ShmGroup::AllGather(input, outputs), std::move(kept),
                input.nbytes() * outputs.size());
}

CollectiveBackend::Step ShmBackend::ReduceScatter(const Tensors& inputs, const at::Tensor& output,
                                                  const c10d::ReduceOp& operation) {
  Tensors kept = inputs;
  kept.push_back(output);
  return ToStep(ShmGroup::ReduceScatter(inputs, output, operation), std::move(kept),
                output.nbytes() * inputs.size());
}

CollectiveBackend::Step ShmBackend::Barrier() { return ToStep(ShmGroup::Barrier(), {}, 0); }

}  // namespace ddprun::worker
