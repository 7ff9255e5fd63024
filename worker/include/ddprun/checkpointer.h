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
  // Of this many of the newest steps checkpoints stay, at least 1: whole ones, and beside them the
  // best. What lacks a shard or is cut short doesn't count, and goes with what is older than they
  // are; so does a step that was saved again after a fault.
  uint32_t keep = 3;
  // Every rank writes its share of a ZeroOptimizer's state into a file of its own, so that no rank
  // ever holds the whole. Read by any number of ranks, and by optimizers without ZeRO.
  bool sharded = false;
  // Rank 0 says so when there is nothing to resume: what was looked for, where, and that training
  // begins at step 0. false: the program looks elsewhere then.
  bool tell_of_none = true;
  // The name of one checkpoint's file, without its directory: Restore takes this one, or none.
  std::string only = "";
  // Entries of the metadata of rank 0's files, for people and for other programs; not restored.
  std::map<std::string, std::string> notes = {};
};

// Saves and resumes training: the module's parameters and buffers by name, the optimizer's state by
// parameter order, the learning rates, every rank's random generators, and the progress; and what
// is added: a GradScaler, a PowerSgd hook, own state.
//
//   checkpointer.Add("scaler", scaler);
//   checkpointer.Add("power_sgd", *hook);
//   const auto progress = checkpointer.Restore();
//   …
//   checkpointer.SaveAsync({.step = step});
//
// Files are safetensors with a checksum, written to a temporary name, synced and renamed, so that a
// crash at any moment leaves whole checkpoints only; one that is damaged all the same is reported
// and the previous one is taken. Rank 0 writes; what each rank has of its own (a sharded state, or
// one that differs by rank) goes into a file a rank, before that, beside it; rank 0's lists their
// checksums, so that what another save has left is none of them. Names carry a fence, so that what
// a cut-off worker of an older generation writes is never resumed by those who went on without it.
//
// A state that no run can go on from isn't written: a parameter that was finite when the
// Checkpointer was made has a NaN or is infinite, or the optimizer's state has a NaN. A warning
// names step, rank and parameter; the older checkpoints stay, and Save counts as done, since
// training may yet do without that parameter. Restore passes over one that is in a file, if there
// is another.
//
// Restore maps the files: what it takes of memory is what is resumed. Ranks that don't find the
// file hold it for as long as Restore takes.
//
// Restore, Claim, Save, SaveAsync, IsBest and Wait are collectives: all ranks call them in the same
// order. On the same number of ranks a resumed run is bit-identical with one that was never
// interrupted, if DistributedDataParallel::buckets() is a part of the checkpoints. A
// ZeroOptimizer's checkpoint and that of the optimizer without ZeRO are alike: either resumes the
// other's, at any number of ranks, in any stage, with any size of buckets. (Sharded ones too, when
// their files can be found together.) Threads: one. Requires: context, optimizer and what is added
// outlive it.
class Checkpointer {
 public:
  Checkpointer(Context& context, std::shared_ptr<torch::nn::Module> module,
               torch::optim::Optimizer& optimizer, CheckpointerOptions options);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Makes `state` a part of the checkpoints, under a name without '.'. A checkpoint that has none
  // of that name leaves the state as it is, with a warning; so does one of another number of ranks
  // when the state differs by rank.
  // Requires: the same names on every rank, each once, before Restore.
  void Add(std::string name, CheckpointedState& state);

  // The same for an average of the parameters: "ema.<name>" for each of the module's names, buffers
  // too, so that "ema." before its names makes it the model that was evaluated. From a checkpoint
  // without one it begins anew, and rank 0 says so.
  void Add(ExponentialMovingAverage& average);

  // Loads the newest whole checkpoint that any rank finds; ranks that lack it get it from one that
  // has it. Nothing = there is none: start from the beginning.
  // Errors: DATA_LOSS — there are checkpoints, but no rank has a whole one; the text names the
  // newest. FAILED_PRECONDITION — it is of another model or optimizer; the text names what doesn't
  // fit. ABORTED — another rank has such an error; the text has its words. UNAVAILABLE — a peer is
  // gone. After an error module and optimizer may have changed, on some ranks.
  absl::StatusOr<std::optional<TrainingProgress>> Restore();

  // After Context::Rejoin, on ranks that were in the generation before: gives up a SaveAsync of
  // that one, if it isn't written yet.
  void LeaveGeneration();

  // After Context::Rejoin, and on ranks that got their state from others instead of by Restore:
  // what is saved from now on is newer than what any rank has resumed from, if `fence` is the
  // highest of all ranks' fences.
  uint64_t fence() const;
  void GoOnAfter(uint64_t fence);

  // Takes the directory for this job until rank 0's Checkpointer or process ends: no other job can
  // then write there. Save and SaveAsync do so by themselves; called before Restore, it keeps a job
  // from resuming what another one is about to delete. Reading needs none. Where the file system
  // has no locks nothing is taken. A collective.
  // Errors: FAILED_PRECONDITION, on all ranks — another job writes there; the text names its host
  // and process. ALREADY_EXISTS — a file stands where the directory should be.
  absl::Status Claim();

  // Writes a checkpoint. One with a `score` (higher is better; rank 0's counts) stays beside the
  // newest ones as long as none has a higher one. Saving a step again replaces it.
  // Errors: Claim's. On rank 0: those of the file system, with the path; older checkpoints stay.
  // Where every rank writes a file: the same on that rank, ABORTED with its words on the others.
  // UNIMPLEMENTED — an optimizer whose state can't be saved. UNAVAILABLE — a peer is gone.
  absl::Status Save(const TrainingProgress& progress, std::optional<double> score = std::nullopt);

  // The same beside training: copies what is to be written, which takes as much memory once more on
  // the ranks that write, and returns; a thread writes it. One at a time: waits for the one before.
  // Errors: as Save's, of this one until its copy is taken, and of the one before.
  absl::Status SaveAsync(const TrainingProgress& progress,
                         std::optional<double> score = std::nullopt);

  // Whether rank 0's score is higher than those of all checkpoints that it finds; the same on all
  // ranks. Never of a NaN. Errors: as Wait's.
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
