#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_SHM_GROUP_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_SHM_GROUP_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/shm/communicator.h"
#include "worker/shm/peer_watch.h"
#include "worker/torch/collectives/collective_backend.h"

namespace ddprun::worker {

// Collectives of one host's ranks on tensors, in shared memory; both backends that use shared
// memory are built on it.
// Errors are thrown: PeerFailure if a peer ended, left or didn't come in time;
// std::invalid_argument if ranks call different collectives or a tensor can't be used.
// Threads: one at a time, except for Break.
class ShmGroup {
 public:
  // Makes or opens the segment and meets the other ranks of the host through `store`, which belongs
  // to them alone. `world_ranks`: of the host's ranks, in order; `rank`: an index into it.
  // Every rank gets an error when one of them does.
  // Errors: FAILED_PRECONDITION — shared memory can't be used here; the text says why.
  // Throws what the store throws.
  static absl::StatusOr<std::unique_ptr<ShmGroup>> Create(c10d::Store& store, uint32_t rank,
                                                          const std::vector<uint32_t>& world_ranks);
  ~ShmGroup() { Leave(); }
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  uint32_t rank() const { return communicator_->rank(); }
  uint32_t ranks() const { return communicator_->ranks(); }

  // The calls, for contiguous tensors (all-reduce and broadcast: dense ones) on the CPU. A call
  // holds pointers: keep the tensors. Throws for what can't be done.
  static shm::Call AllReduce(const at::Tensor& tensor, const c10d::ReduceOp& operation);
  static shm::Call Broadcast(const at::Tensor& tensor, uint32_t root);
  static shm::Call AllGather(const at::Tensor& input, const std::vector<at::Tensor>& outputs);
  static shm::Call ReduceScatter(const std::vector<at::Tensor>& inputs, const at::Tensor& output,
                                 const c10d::ReduceOp& operation);
  static shm::Call Barrier();

  // Runs the call as far as possible without sleeping. Returns whether it is done.
  bool Try(shm::Call& call);
  // Runs the call, or the rest of it. `timeout`: how long to wait for peers.
  void Finish(shm::Call& call, std::chrono::milliseconds timeout);
  // Fails the collectives of all ranks, now and from now on. Threads: any.
  void Break(const std::string& reason) { communicator_->segment().Break(reason); }
  // Break(), called before this rank leaves, for peers that still wait for it. Threads: any.
  void Leave();

 private:
  explicit ShmGroup(const std::shared_ptr<shm::Segment>& segment, uint32_t rank);

  std::unique_ptr<shm::Communicator> communicator_;
  std::unique_ptr<shm::PeerWatch> watch_;
  // How long to wait busily: in the training's thread, and in one beside it.
  const absl::Duration patience_;
  const absl::Duration background_patience_;
};

// c10d's collectives between the processes of one host, in shared memory (worker/shm).
// Small ones are tried in the calling thread: between ranks that are in step they take
// microseconds.
class ShmBackend : public CollectiveBackend {
 public:
  ShmBackend(std::unique_ptr<ShmGroup> group, std::chrono::milliseconds timeout);
  ~ShmBackend() override;

  const std::string getBackendName() const override { return "shm"; }

 protected:
  Step AllReduce(const at::Tensor& tensor, const c10d::ReduceOp& operation) override;
  Step Broadcast(const at::Tensor& tensor, uint32_t root) override;
  Step AllGather(const at::Tensor& input, const Tensors& outputs) override;
  Step ReduceScatter(const Tensors& inputs, const at::Tensor& output,
                     const c10d::ReduceOp& operation) override;
  Step Barrier() override;
  void Break(const std::string& reason) override { group_->Break(reason); }

 private:
  // `kept`: what the call points into. `bytes`: what it moves.
  Step ToStep(shm::Call call, Tensors kept, size_t bytes);

  const std::unique_ptr<ShmGroup> group_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_SHM_GROUP_H_
