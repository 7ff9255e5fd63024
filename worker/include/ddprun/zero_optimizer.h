#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_ZERO_OPTIMIZER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_ZERO_OPTIMIZER_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ddprun/context.h"

namespace torch::optim {
struct AdamWOptions;
struct SGDOptions;
}  // namespace torch::optim

namespace ddprun {

struct ZeroOptions {
  // 1: each rank keeps and updates its share of the optimizer's state; DistributedDataParallel
  // averages the gradients. 2: gradients are shared out too; the module is not wrapped. 3:
  // parameters are, too: a rank has the whole of a bucket only while operators use it.
  int stage = 1;
  // Size in MiB, above 0, of the buckets in which parameters (in stage 2 gradients, too) are sent.
  // The first bucket has at most 1, so that it leaves early. Stage 3: a bucket has as many whole
  // modules as fit; a larger module is divided into its children, or has a bucket alone.
  double bucket_cap_mb = 25;
  // State and update are on the CPU: a GPU then holds parameters (stage 3: those that are
  // gathered), and gradients on their way.
  bool offload_to_cpu = false;
  // Stage 2: some parameters get no gradient in some steps. Costs one small all-reduce a step. Not
  // in stage 3, where ranks use all parameters in one order.
  bool find_unused_parameters = false;
  // Stages 2 and 3: rank 0's buffers (BatchNorm's statistics) go to all ranks in each step.
  bool broadcast_buffers = true;
  // At the start rank 0's parameters and buffers go to all ranks; false: they are equal already.
  bool init_sync = true;
  // Parameters in groups with options of their own; none: all of the module's in one. A parameter
  // in no group isn't updated.
  std::vector<torch::optim::OptimizerParamGroup> groups = {};
};

// Bytes on one rank.
struct ZeroMemory {
  int64_t parameters = 0;       // those of the groups, on the device; stage 3: the own share
  int64_t gradients = 0;        // held now; stages 2, 3: of the own share, and what NoSync gathered
  int64_t optimizer_state = 0;  // of the own share
  int64_t offloaded = 0;        // offload_to_cpu: copies of the own share of the parameters
  int64_t gathered = 0;         // stage 3: whole buckets, the most so far at once
  int64_t buckets = 0;          // stages 2, 3: gradients on their way, the most so far at once
  int64_t all_parameters = 0;   // what a rank would hold without ZeRO
  int64_t all_gradients = 0;
  int64_t all_optimizer_state = 0;

  // "parameters 4.0 MiB, gradients 2.0 of 4.0 MiB, optimizer state 4.0 of 8.0 MiB, …".
  std::string ToText() const;
};

// Figures of the last step.
struct ZeroStatistics {
  std::vector<int64_t> bucket_bytes;
  // Stages 2 and 3: buckets of the current backward pass that have left. All = it is complete.
  int64_t buckets_sent = 0;
  // Stage 3: how many gathers there were, and how many were begun before a bucket was needed.
  int64_t buckets_gathered = 0;
  int64_t buckets_prefetched = 0;
  absl::Duration reduction;  // from the first bucket's start to the last one's end
  absl::Duration waiting;    // the part of it after the backward pass; the rest was overlapped
  absl::Duration update;
  absl::Duration gathering;  // of the updated parameters; stage 3: 0, the passes gather them
};

// Tensors by name; see ConsolidatedState and ShardedState.
using ZeroState = std::map<std::string, torch::Tensor>;

// An optimizer that is divided among the ranks: after the backward pass each rank updates its share
// of the parameters and sends it to the others. Results are those of the plain optimizer, to
// rounding. Bytes a float parameter on each of W ranks, with Adam:
//
//   stage   state   gradient   parameter
//   none    8       4          4
//   1       8/W     4          4
//   2       8/W     4/W        4
//   3       8/W     4/W        4/W
//
//   auto zero = *ddprun::ZeroOptimizer::Create(model.ptr(), context,
//                                              torch::optim::AdamWOptions(3e-4), {.stage = 2});
//   for (…) {
//     zero->ZeroGrad();
//     loss(model->forward(batch)).backward();   // stage 1: ddp->Forward(…)
//     DDPRUN_RETURN_IF_ERROR(zero->ClipGradNorm(1.0).status());
//     DDPRUN_RETURN_IF_ERROR(zero->Step());
//   }
//
// Stage 2 sends a bucket of gradients as soon as its last gradient exists, while the backward pass
// goes on. After the pass a use of a parameter's grad() throws; a rank keeps the averages for its
// share. As in DistributedDataParallel, buckets follow the module's order from the last parameter
// to the first. Gradients of several backward passes add up until ZeroGrad: in the shares, or,
// inside NoSync, on each rank.
//
// Stage 3 gathers a bucket of parameters when an operator uses one of them, in a forward pass, a
// backward pass or an evaluation, and frees it when another bucket is needed; the gather of the
// next bucket is begun ahead. The program needn't do anything, but a use is a collective: all ranks
// must call their operators on parameters in the same order, and no rank may use a parameter alone,
// except while it holds WholeParameters. Parameters that aren't trained, and buffers, are whole on
// each rank. Nothing may use a parameter's data_ptr().
//
// As a torch::optim::Optimizer it works with GradScaler, SetLearningRate and Checkpointer; its
// param_groups() hold, in place of each parameter, this rank's share of it as a vector.
// The module's parameters become views into buckets: earlier pointers to their data are invalid.
// Not inside DistributedDataParallel::Join: ranks without inputs take no steps.
// Threads: one. Requires: the context outlives it; the same module and options on every rank.
// Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models
// (SC 2020), "P_os", "P_os+g", "P_os+g+p"; Ren et al., ZeRO-Offload (2021).
class ZeroOptimizer : public torch::optim::Optimizer {
 public:
  // Makes the optimizer of a share. An element's update may depend on that element alone (Adam,
  // AdamW, SGD, RMSprop, Adagrad).
  using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(
      std::vector<torch::optim::OptimizerParamGroup> groups)>;

  // Lays the parameters out and copies rank 0's to all. With options alone: FusedAdamW, FusedSGD.
  // Errors: INVALID_ARGUMENT — an option out of its range; nothing to train; a parameter that is in
  // two groups, sparse, not the module's, or on another device than the context's; or module or
  // options differ between the ranks: then every rank gets the text that names rank and parameter.
  // UNAVAILABLE — a peer is gone.
  static absl::StatusOr<std::unique_ptr<ZeroOptimizer>> Create(
      std::shared_ptr<torch::nn::Module> module, Context& context,
      const torch::optim::AdamWOptions& adamw, ZeroOptions options = {});
  static absl::StatusOr<std::unique_ptr<ZeroOptimizer>> Create(
      std::shared_ptr<torch::nn::Module> module, Context& context,
      const torch::optim::SGDOptions& sgd, ZeroOptions options = {});
  static absl::StatusOr<std::unique_ptr<ZeroOptimizer>> Create(
      std::shared_ptr<torch::nn::Module> module, Context& context, const MakeOptimizer& make,
      ZeroOptions options = {});
  ~ZeroOptimizer() override;

  // Updates the own share and gathers the others'; a collective. The first Step prints the memory:
  // on rank 0 always, on the others at LOGLEVEL=INFO.
  // Errors: of FinishBackward. FAILED_PRECONDITION, in the first one of stage 1, on all ranks: the
  // gradients differ, and no DistributedDataParallel averages them. UNAVAILABLE — a peer is gone.
  absl::Status Step();
  torch::Tensor step(LossClosure closure = nullptr) override;  // Step(), throws

  // Drops all gradients (where DistributedDataParallel holds views into its buckets: zeroes them).
  void ZeroGrad();

  // Stages 2, 3: waits until the gradients are in their shares. Step, ClipGradNorm and GradScaler
  // do so themselves; with find_unused_parameters call it between two backward passes of one step.
  // Errors: FAILED_PRECONDITION — a parameter got no gradient, without find_unused_parameters; the
  // text names it. UNAVAILABLE — a peer is gone.
  absl::Status FinishBackward();

  // ddprun::ClipGradNorm over all ranks' shares; a collective in stages 2, 3. The norm is the same
  // on all ranks, and so is an error's text.
  absl::StatusOr<double> ClipGradNorm(double max_norm);

  // Call it after code other than Step has changed parameters: renews offload_to_cpu's copies, and
  // the masters of bf16 and fp16 parameters (FusedAdamW). In stage 3 only masters need it.
  void ParametersChanged();

  ZeroMemory Memory() const;
  ZeroStatistics Statistics() const;

  // The state of the whole optimizer, in CPU memory on rank `target`, nothing on the others; a
  // collective. Names and shapes are those of the optimizer without ZeRO: "<parameter>.exp_avg",
  // parameters counted over all groups, and "group.<number>.learning_rate".
  // Errors: UNIMPLEMENTED — the state of an optimizer made by MakeOptimizer can't be read.
  // UNAVAILABLE — a peer is gone.
  absl::StatusOr<ZeroState> ConsolidatedState(uint32_t target = 0);
  // This rank's share of the state, in CPU memory, without communication:
  // "<parameter>.exp_avg@<first element>" [n]. The shares of all ranks are the whole state.
  absl::StatusOr<ZeroState> ShardedState() const;
  // The part of `state` that belongs to this rank's share; to collect shards of another world size.
  ZeroState OwnPart(const ZeroState& state) const;
  // Takes a whole state (a plain FusedAdamW's or FusedSGD's, too), or shards that together hold the
  // own share, saved at any world size. No communication.
  // Errors: FAILED_PRECONDITION — parts are missing, or the state is of another model or optimizer;
  // the text says what, and nothing was changed.
  absl::Status RestoreState(const ZeroState& state);

  // While a NoSync lives, backward passes add up gradients on this rank; the first pass after it
  // averages them. Takes the memory of all gradients. In stage 1 use DistributedDataParallel's.
  class NoSync {
   public:
    explicit NoSync(ZeroOptimizer& zero);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    ZeroOptimizer& zero_;
    const bool before_;
  };

  // While a WholeParameters lives, at most until Rejoin, each rank has all parameters: for what one
  // rank does alone, like SaveWeights, or ranks do in different orders. The constructor and a Step
  // meanwhile are collectives. Ranks write the same values. Only in stage 3. Throws as c10d.
  class WholeParameters {
   public:
    explicit WholeParameters(ZeroOptimizer& zero);
    ~WholeParameters();
    WholeParameters(const WholeParameters&) = delete;
    WholeParameters& operator=(const WholeParameters&) = delete;

   private:
    ZeroOptimizer& zero_;
    const int64_t setup_;
  };

  struct Implementation;  // for the library itself, and what follows
  Implementation& implementation() { return *implementation_; }
  const Implementation& implementation() const { return *implementation_; }
  void EndTraining();  // ZeroGatherer's
  // Before Context::Rejoin: leaves the generation and gives up the collectives under way.
  void LetGo();
  // After Context::Rejoin: divides the module's parameters anew, without any state; parameters of
  // stage 3 have no values until they are restored. A collective. Errors: as Create's; then call it
  // again in the next generation.
  absl::Status Rejoin(Context& context, bool init_sync);
  // The averaged gradients, which GradScaler divides. Throws FinishBackward's errors.
  std::vector<torch::Tensor> ReducedGradients();
  // Whether `state` has all of this rank's share of each parameter.
  bool Covers(const ZeroState& state) const;
  // Whether `mine` is true on any rank; a collective in stages 2, 3. Throws.
  bool OnAnyRank(bool mine);
  // Stage 3: the parameters that are shared out, by their names, whole, in CPU memory on rank
  // `target`, nothing on the others; a collective. Nothing in stages 1 and 2.
  absl::StatusOr<ZeroState> SharedOutParameters(uint32_t target) const;
  // Takes the own share of such a parameter. Returns false if there is none of that name. No
  // communication. Throws.
  bool TakeParameter(const std::string& name, const torch::Tensor& whole);

 private:
  explicit ZeroOptimizer(std::unique_ptr<Implementation> implementation);

  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_ZERO_OPTIMIZER_H_
