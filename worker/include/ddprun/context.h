#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_CONTEXT_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_CONTEXT_H_

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/abseil_release.h"
#include "base/progress_page.h"

namespace ddprun {

struct ContextOptions {
  // "shm": shared memory, for workers of one host on CPUs. "gloo": over the network.
  // "hierarchical": shared memory on each host, gloo between the hosts. "nccl": GPUs. "auto": the
  // value of DDPRUN_BACKEND, if set; else nccl if the machine has GPUs and this build has its
  // plug-in; else shm on one host, hierarchical if hosts have several workers, or gloo. Rank 0
  // prints which one "auto" chose, and why. The workers of one ddprun or torchrun are one host's.
  std::string backend = "auto";
  // How long to wait for all workers of the generation.
  absl::Duration start_timeout = absl::Minutes(10);
  // Timeout of one collective; torch's default. With shm the error text names the missing rank. The
  // death of a peer is noticed at once, independent of this.
  absl::Duration collective_timeout = absl::Minutes(30);
  // For finding mistakes: before each collective, and at the end of the program, checks that all
  // ranks are about to do the same; if not, every rank fails at once with a text that says which
  // rank does what. Costs two or three calls of the agent's store a collective. The variable
  // DDPRUN_CHECK_COLLECTIVES=1 does the same.
  bool check_collectives = false;
  // This process goes on when another worker fails, or nodes come and go: see Rejoin. The agent
  // then neither signals nor replaces it, but waits for it.
  bool in_process_restart = false;
  // As in_process_restart, unless the backend is nccl.
  bool in_process_restart_on_cpu = false;
};

// A worker's place in its generation and its connection to the other workers.
//
// Under ddprun the place comes from this node's agent, and the workers find each other through
// their agents. Under torchrun it comes from the environment, with MASTER_ADDR:MASTER_PORT
// (env://). A program that was started by hand is a world of one.
//
// Collectives are called by all ranks, in the same order. An error whose text starts with
// "PeerError: " means that another worker, not this one, failed: end the process, and the agents
// start the next generation; or, with in_process_restart, Rejoin.
// As in Python, TORCH_DISTRIBUTED_DEBUG=DETAIL compares collectives over a second Gloo group, and
// LibTorch's own variables (NCCL_*, TORCH_NCCL_*, GLOO_*) have their effect; rank 0 prints at the
// start which of them are set. Create ignores SIGPIPE, unless the program has a handler of its own:
// a lost peer is an error, not the end of this process. Threads: one.
class Context {
 public:
  // Reads the environment, meets the other workers and connects to them.
  // Errors: INVALID_ARGUMENT — the environment contradicts torchrun's contract; an unknown backend,
  // or different ones on different ranks. ABORTED — the generation is over already. UNAVAILABLE —
  // the agent or a peer is gone. FAILED_PRECONDITION — nccl or shm was asked for where there is
  // none; a second context. If one rank finds an error, the others fail with a text that names the
  // rank.
  static absl::StatusOr<std::unique_ptr<Context>> Create(const ContextOptions& options = {});
  // A world of one on the same device, for what this worker does without the others. Its Mark()
  // does nothing, and it can't rejoin. Errors: INTERNAL — LibTorch refused.
  static absl::StatusOr<std::unique_ptr<Context>> Alone(const Context& like);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  uint32_t rank() const;
  uint32_t local_rank() const;
  uint32_t world_size() const;
  // The number of workers of this worker's launcher (usually those of its host), and the number of
  // that launcher (torchrun's GROUP_RANK).
  uint32_t local_world_size() const;
  uint32_t node_rank() const;
  // Whether this is rank 0, which prints and writes checkpoints.
  bool is_main() const { return rank() == 0; }
  // Number of this assignment of ranks; 0 when not started by ddprun.
  uint64_t generation() const;
  uint32_t restart_count() const;
  // Names the job; "none" when its launcher gave no name.
  const std::string& run_id() const;
  // Where models and batches belong: cpu, or this worker's GPU.
  torch::Device device() const;
  // "shm", "hierarchical", "gloo" or "nccl".
  const std::string& backend() const;

  // Adds `tensor` over all ranks, in place. Requires: contiguous, on device().
  absl::Status AllReduceSum(torch::Tensor& tensor);
  // Copies rank `source`'s tensor to all, in place. Requires: as above, the same size everywhere.
  absl::Status Broadcast(torch::Tensor& tensor, uint32_t source);
  // Every rank's tensor, by rank. Requires: the same shape and type everywhere.
  absl::StatusOr<std::vector<torch::Tensor>> AllGather(const torch::Tensor& tensor);
  // Waits until every rank is here.
  absl::Status Barrier();
  // For GPUs with in_process_restart, where a collective that a peer's death breaks ends without an
  // error and leaves garbage. Waits for all collectives begun so far, and returns whether they were
  // complete. Call it before each optimizer.step() in a training loop of your own; ZeroOptimizer,
  // Session and the collectives above do so themselves.
  absl::Status AwaitResults();

  // Reports what this worker is doing, for the detection of hangs (docs/PROGRESS.md). Call it at
  // the top of every training step, before an evaluation, and before waiting on purpose; a
  // Checkpointer does so itself. Costs one store to memory, and does nothing if ddprun didn't start
  // the program. `step` never goes back; a later Session of the process begins at its first step.
  void Mark(ProgressPhase phase, int64_t step);

  // Mark() for the top of a training step. Returns true if the program has to save and return,
  // because a node of the job is about to be taken away. All ranks get true at the same step, which
  // no rank has begun.
  bool StopAt(int64_t step);

  // Whether Rejoin can be tried: with in_process_restart, under ddprun. Threads: any.
  bool CanRejoin() const;
  // Whether the generation that this worker takes part in has ended. Its collectives then end with
  // a PeerError, those under way as well. Always false without CanRejoin. Threads: any.
  bool GenerationIsOver() const;
  // Joins the next generation with this process instead of a new one: waits for the end of this
  // generation (10 s at most, because a PeerError means that it is ending) and for the next one,
  // and connects to its workers; some may be new, others gone. Rank, world size, generation and
  // restart count change. What was made from this context (DistributedDataParallel, ZeroOptimizer,
  // Group) belongs to the old generation: make it anew. Tensors are as the broken step left them,
  // and may differ between the ranks.
  //
  // Errors: FAILED_PRECONDITION — not CanRejoin. DEADLINE_EXCEEDED — this generation goes on, so
  // its PeerError has another cause. ABORTED — the job is over. "PeerError: …" — the next
  // generation broke, too: call Rejoin again. Others: as Create's. After any error except the
  // PeerError end the process.
  absl::Status Rejoin();

  // Adds to the time that this worker has waited for data, which is shown apart from training
  // (docs/GOODPUT.md). Negative times are ignored.
  void AddDataWait(absl::Duration waited);

  // For the library itself.
  struct Implementation;
  Implementation& implementation() { return *implementation_; }

 private:
  explicit Context(std::unique_ptr<Implementation> implementation);

  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_CONTEXT_H_
