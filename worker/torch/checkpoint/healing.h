#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_HEALING_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_HEALING_H_

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ddprun/context.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/peer_state.h"

namespace ddprun::worker {

// The first step of a generation in which some ranks lack the newest state, and get it beside that
// step: those that have it learn, and send it meanwhile, out of the memory where it lies, since
// only the optimizer changes it; the others take part in all collectives with gradients of zero.
//
//   Begin    before the step: all have what passes change (buffers, extras), the rest is on its way
//   Finish   after the last backward pass, before the optimizer: all have all of it
//   Abandon  in place of Finish, where the step broke
//
// Invariants: no rank's optimizer steps before every rank has the state, so nobody is ever further
// than who is being healed. A rank that takes one has it all or has the own one, or none, as
// before; nothing in between outlives Abandon. What a giver sends lives as long as the transfer.
// Threads: one; the transfer has its own. Requires: context and what `state` refers to outlive it.
//
// Ranks that lack the state make the same passes, with gradients of zero, so that buckets, their
// order, unused parameters and hooks need no rule of their own; shadowing the reducer's collectives
// (as DDP's Join) would leave them without gradients after the step. Not with ZeRO: its step
// needs every share.
class Healing {
 public:
  // A collective. Requires: some have the state, and not all.
  // Errors: as TakeNewestState's, after which this rank's state is as before.
  static absl::StatusOr<std::unique_ptr<Healing>> Begin(Context& context,
                                                        const ReplicatedState& state,
                                                        const KnownStates& known);
  // Gives the transfer up.
  ~Healing();
  Healing(const Healing&) = delete;
  Healing& operator=(const Healing&) = delete;

  // Whether this rank lacks the state, and learns nothing in this step.
  bool takes() const { return !known_.HasIt(context_.rank()); }
  // How many ranks learn, and which of them this one is; one that doesn't counts as the first.
  uint32_t learners() const { return static_cast<uint32_t>(givers_.size()); }
  uint32_t learner() const;
  const StateVersion& version() const { return *known_.newest; }

  // Waits until all ranks have the state, and the leader's buffers; nothing the second time. A
  // collective. Errors: UNAVAILABLE, "PeerError: …".
  absl::Status Finish();
  // Whether this rank lacked the state, and has it now, whatever else has come of it.
  bool has_taken() const { return has_taken_; }

  // Ends the transfer. A rank to which the state had come whole has taken it; another one's
  // buffers and extras are what they were before Begin. Nothing after Finish.
  absl::Status Abandon();

 private:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  Healing(Context& context, const ReplicatedState& state, const KnownStates& known);
  absl::Status Start();
  absl::Status ReadOwn();
  // What the leader sends in a collective: what isn't lasting, and where in a file of the rest what
  // lies.
  absl::StatusOr<torch::Tensor> Introduction();
  absl::Status TakeIntroduction(const torch::Tensor& bytes);
  void KeepWhatWasBefore();
  absl::Status PutBack();
  absl::Status Connect();
  // The whole transfer, in its thread.
  absl::Status Transfer();
  void Post(size_t message, Works& works);
  absl::Status Take();
  absl::Status ShareBuffers();
  void LetGo();

  Context& context_;
  const ReplicatedState state_;
  const KnownStates known_;
  std::vector<uint32_t> givers_;  // the ranks that have it
  std::vector<uint32_t> takers_;  // the others, each served by the giver of its place, in turns

  // The lasting tensors: a giver's own, or the file in memory_ in which a taker gathers them.
  TensorFile file_;
  std::vector<torch::Tensor> kept_;  // what a giver's file points into
  torch::Tensor memory_;
  std::vector<absl::string_view> messages_;
  CheckpointTensors introduction_;  // a taker's
  CheckpointTensors before_;        // a taker's own: what Begin changes, as copies
  std::vector<std::pair<torch::Tensor, unsigned>> mutes_;  // hooks on the gradients of a taker

  c10::intrusive_ptr<c10d::Backend> links_;  // null: nobody to speak with
  std::vector<int> partners_;                // their ranks in it: a giver's takers, a taker's giver
  std::thread thread_;
  absl::Status transferred_;  // what came of it; read when the thread has ended
  bool is_finished_ = false;
  bool has_taken_ = false;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_HEALING_H_
