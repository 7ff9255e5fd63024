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

// Sends the newest state to ranks that lack it (takers), beside the first step of a generation.
// Ranks that have the state (givers) learn in that step, and send the state from where it lies,
// because only the optimizer changes it. Takers take part in all collectives with gradients of
// zero. healing.cc explains how.
//
//   Begin    before the step: all ranks have what passes change (buffers, extras)
//   Finish   after the last backward pass, before the optimizer: all ranks have the whole state
//   Abandon  in place of Finish, if the step broke
//
// Invariants: no rank's optimizer steps before every rank has the state, so no rank is ever further
// than a taker. After Abandon a taker has the whole state, or the one that it had before, or none.
// The memory that a giver sends lives as long as the transfer.
// Threads: one; the transfer has its own. Requires: context and what `state` refers to outlive it.
//
// Ranks that lack the state make the same passes, with gradients of zero, so that buckets, their
// order, unused parameters and hooks need no rule of their own; shadowing the reducer's collectives
// (as DDP's Join) would leave them without gradients after the step. Not with ZeRO: its step
// needs every share.
class Healing {
 public:
  // A collective. Requires: some ranks have the state, and not all.
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
  // How many ranks learn, and this rank's number among them; a taker counts as the first.
  uint32_t learners() const { return static_cast<uint32_t>(givers_.size()); }
  uint32_t learner() const;
  const StateVersion& version() const { return *known_.newest; }

  // Waits until all ranks have the state, and takers the leader's buffers. A collective; does
  // nothing the second time. Errors: UNAVAILABLE, "PeerError: …".
  absl::Status Finish();
  // Whether this rank is a taker that has the state now, also if the healing failed.
  bool has_taken() const { return has_taken_; }

  // Ends the transfer. A taker that has received the whole state takes it; otherwise its buffers
  // and extras are restored to what they were before Begin. Does nothing after Finish.
  absl::Status Abandon();

 private:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  Healing(Context& context, const ReplicatedState& state, const KnownStates& known);
  absl::Status Start();
  absl::Status ReadOwn();
  // The bytes that the leader sends in a collective: the passing tensors, and the header of a file
  // of the lasting ones.
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
  std::vector<uint32_t> givers_;  // the ranks that have the state
  std::vector<uint32_t> takers_;  // the others; number i is served by giver i modulo the givers

  // The lasting tensors: a giver's own, or the file in memory_ in which a taker gathers them.
  TensorFile file_;
  std::vector<torch::Tensor> kept_;  // the memory that a giver's file points into
  torch::Tensor memory_;
  std::vector<absl::string_view> messages_;
  CheckpointTensors introduction_;  // a taker's
  CheckpointTensors before_;        // a taker's own: what Begin changes, as copies
  std::vector<std::pair<torch::Tensor, unsigned>> mutes_;  // hooks on the gradients of a taker

  c10::intrusive_ptr<c10d::Backend> links_;  // null: this rank has no partner
  std::vector<int> partners_;                // ranks in links_: a giver's takers, a taker's giver
  std::thread thread_;
  absl::Status transferred_;  // the transfer's result; read when the thread has ended
  bool is_finished_ = false;
  bool has_taken_ = false;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_HEALING_H_
