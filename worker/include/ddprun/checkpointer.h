#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_CHECKPOINTER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_CHECKPOINTER_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/context.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

class ExponentialMovingAverage;

// How far training has come.
struct TrainingProgress {
  int64_t step = 0;           // optimizer steps done
  int64_t epoch = 0;          // epochs done
  int64_t epoch_samples = 0;  // samples that all ranks together have seen of the current epoch

  friend bool operator==(const TrainingProgress&, const TrainingProgress&) = default;
};

struct CheckpointerOptions {
  std::string directory = {};  // created when missing; shared by the nodes, or one a node
  // How many of the newest whole checkpoints stay, at least 1; the best one stays beside them.
  // Incomplete checkpoints (cut short, without a shard) don't count and are deleted with the older
  // ones, and so are those of a step that was saved again after a fault.
  uint32_t keep = 3;
  // Every rank writes its share of a ZeroOptimizer's state into a file of its own, so that no rank
  // ever holds the whole. Read by any number of ranks, and by optimizers without ZeRO.
  bool sharded = false;
  // If there is nothing to resume, rank 0 prints what it looked for, where, and that training
  // begins at step 0. False: prints nothing, for programs that then look elsewhere.
  bool tell_of_none = true;
  // The name of a checkpoint's file, without its directory; not "": Restore takes only this one.
  std::string only = "";
  // Entries of the metadata of rank 0's files, for people and for other programs; not restored.
  std::map<std::string, std::string> notes = {};
};

// Saves and resumes training: the module's parameters and buffers by name, the optimizer's state by
// parameter order, the learning rates, every rank's random generators, and the progress; and states
// that the program adds: a GradScaler, a PowerSgd hook, its own.
//
//   checkpointer.Add("scaler", scaler);
//   checkpointer.Add("power_sgd", *hook);
//   const auto progress = checkpointer.Restore();
//   …
//   checkpointer.SaveAsync({.step = step});
//
// Files are safetensors with a checksum, written to a temporary name, synced and renamed, so that a
// crash at any moment leaves whole checkpoints only. A checkpoint that is damaged all the same is
// reported, and the previous one is taken. Rank 0 writes the checkpoint. If ranks have states of
// their own (sharded, or different by rank), each rank first writes a file beside it, and rank 0's
// file lists the checksums of these, so that leftovers of another save aren't mistaken for them.
// Names carry a fence: what a cut-off worker of an older generation writes is never resumed by the
// workers that went on without it.
//
// A state that no run can go on from isn't written: a parameter that was finite when the
// Checkpointer was made has a NaN or is infinite, or the optimizer's state has a NaN. A warning
// names step, rank and parameter; the older checkpoints stay, and Save returns OK, because training
// may not need that parameter. If a file has such a state, Restore prefers another checkpoint.
//
// Restore maps the files, so it needs no memory beyond the state itself. Ranks that don't find the
// file hold a copy of it until Restore returns.
//
// Restore, Claim, Save, SaveAsync, IsBest and Wait are collectives: all ranks call them in the same
// order. On the same number of ranks a resumed run is bit-identical with one that was never
// interrupted, if DistributedDataParallel::buckets() is a part of the checkpoints. A
// ZeroOptimizer resumes from the checkpoint of an optimizer without ZeRO, and the other way round,
// at any number of ranks, in any stage, with any size of buckets (from a sharded one if its files
// are found together). Threads: one. Requires: context, optimizer and added states outlive it.
class Checkpointer {
 public:
  Checkpointer(Context& context, std::shared_ptr<torch::nn::Module> module,
               torch::optim::Optimizer& optimizer, CheckpointerOptions options);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Makes `state` a part of the checkpoints, under a name without '.'. Restore doesn't change
  // `state`, and warns, if the checkpoint has no state of that name, or if the state differs by
  // rank and the checkpoint is of another number of ranks.
  // Requires: the same names on every rank, each once, before Restore.
  void Add(std::string name, CheckpointedState& state);

  // Makes an average of the parameters a part of the checkpoints: "ema.<name>" for each of the
  // module's names, buffers too, so that the tensors with the prefix "ema." are the model that was
  // evaluated. From a checkpoint without an average it begins anew, and rank 0 prints that.
  void Add(ExponentialMovingAverage& average);

  // Loads the newest whole checkpoint that any rank finds; the other ranks get it from that rank.
  // Returns nullopt if there is none: start from the beginning.
  // Errors: DATA_LOSS — there are checkpoints, but no rank has a whole one; the text names the
  // newest. FAILED_PRECONDITION — it is of another model or optimizer; the text names what doesn't
  // fit. ABORTED — another rank has such an error; the text has its words. UNAVAILABLE — a peer is
  // gone. After an error module and optimizer may have changed, on some ranks.
  absl::StatusOr<std::optional<TrainingProgress>> Restore();

  // After Context::Rejoin, on ranks that were in the generation before: gives up a SaveAsync of
  // that generation if it isn't written.
  void LeaveGeneration();

  // After Context::Rejoin, and on ranks that got their state from other ranks instead of Restore.
  // Params: fence: the highest of all ranks' fences, so that checkpoints saved from now on are
  // newer than any that a rank has resumed from.
  uint64_t fence() const;
  void GoOnAfter(uint64_t fence);

  // Locks the directory for this job until rank 0's Checkpointer or process ends: no other job can
  // write there. Save and SaveAsync do so by themselves; called before Restore, it keeps a job from
  // resuming what another one is about to delete. Reading needs no lock. On file systems without
  // locks it does nothing. A collective.
  // Errors: FAILED_PRECONDITION, on all ranks — another job writes there; the text names its host
  // and process. ALREADY_EXISTS — a file stands where the directory should be.
  absl::Status Claim();

  // Writes a checkpoint. A checkpoint with a `score` (higher is better; rank 0's counts) stays
  // beside the newest ones until another has a higher score. Saving a step again replaces it.
  // Errors: Claim's. On rank 0: those of the file system, with the path; older checkpoints stay. If
  // every rank writes a file: the same on that rank, ABORTED with its text on the others.
  // UNIMPLEMENTED — an optimizer whose state can't be saved. UNAVAILABLE — a peer is gone.
  absl::Status Save(const TrainingProgress& progress, std::optional<double> score = std::nullopt);

  // Save beside training: copies the state, which takes as much memory once more on the ranks that
  // write, and returns; a thread writes the copy. One at a time: waits for the SaveAsync before.
  // Errors: as Save's, of this one until its copy is taken, and of the one before.
  absl::Status SaveAsync(const TrainingProgress& progress,
                         std::optional<double> score = std::nullopt);

  // Whether rank 0's score is higher than those of all checkpoints that it finds; the same on all
  // ranks. False for NaN. Errors: as Wait's.
  absl::StatusOr<bool> IsBest(double score);

  // Waits until the last SaveAsync is written. Save, SaveAsync, IsBest and Restore do so by
  // themselves, as does the destructor, which logs an error. Errors: as Save's.
  absl::Status Wait();

 private:
  struct Implementation;

  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_CHECKPOINTER_H_
