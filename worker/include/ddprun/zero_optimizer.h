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
  // Size of the buckets in MiB that parameters (and, in stage 2, gradients) go around in; above 0.
  // The first one has at most 1, so that it leaves early. Stage 3: a bucket has as many whole
  // modules as fit, of a module that doesn't fit each child, and a module without children alone.
  double bucket_cap_mb = 25;
  // State and update are the CPU's: a GPU then holds parameters (stage 3: those that are gathered),
  // and gradients on their way.
  bool offload_to_cpu = false;
  // Stage 2: some parameters get no gradient in some steps. One small all-reduce a step. Not in
  // stage 3, whose ranks use all parameters in one order.
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

// Of the last step.
struct ZeroStatistics {
  std::vector<int64_t> bucket_bytes;
  // Stages 2 and 3: buckets of the current backward pass that have left. All = it is complete.
  int64_t buckets_sent = 0;
  // Stage 3: how often a bucket was gathered, and how often that was begun before it was needed.
  int64_t buckets_gathered = 0;
  int64_t buckets_prefetched = 0;
  absl::Duration reduction;  // from the first bucket's start to the last one's end
  absl::Duration waiting;    // of that, after the backward pass: the rest was overlapped
  absl::Duration update;
  absl::Duration gathering;  // of the updated parameters; stage 3: none, that is the passes'
};

// Tensors by name; see ConsolidatedState and ShardedState.
using ZeroState = std::map<std::string, torch::Tensor>;

// An optimizer of which each of W ranks holds a W-th: after the backward pass a rank updates its
// share of the parameters and sends it to the others. Results are those of the plain optimizer, to
// rounding; memory is, of Adam's 8 bytes a float parameter, 8/W, and in stage 2 of the gradients'
// 4, 4/W; in stage 3 of the parameters' 4, 4/W as well.
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
// Stage 2 sends a bucket of gradients off as soon as its last one is there, while the backward pass
// goes on; after it a parameter's grad() is undefined, and what remains is the average for the own
// share. As in DistributedDataParallel, the module's order decides what goes together, last first.
// Gradients of several backward passes add up until ZeroGrad: in the shares, or, inside NoSync, on
// each rank.
//
// Stage 3 gathers a bucket of parameters when an operator is called that uses one of them, in
// forward and in backward pass, also when it is called by an evaluation, and frees it when another
// bucket is needed; the one that comes next is begun ahead. The program needn't do anything, but
// that is a collective: all ranks call their operators on parameters in the same order, so that
// none looks at a parameter alone, except while it holds WholeParameters. Parameters that aren't
// trained, and buffers, are whole on each rank. Nothing may use a parameter's data_ptr().
//
// As a torch::optim::Optimizer it works with GradScaler, SetLearningRate and Checkpointer; its
// param_groups() hold, in place of each parameter, this rank's share of it as a vector.
// The module's parameters become views into buckets: pointers to their data end.
// Not inside DistributedDataParallel::Join: ranks without inputs take no steps.
// Threads: one. Requires: the context outlives it; the same module and options on every rank.
// Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models
// (SC 2020), stages "P_os", "P_os+g" and "P_os+g+p"; Ren et al., ZeRO-Offload (2021).
class ZeroOptimizer : public torch::optim::Optimizer {
 public:
  // Makes the optimizer of a share: any whose update of an element looks at nothing but that
  // element (Adam, AdamW, SGD, RMSprop, Adagrad).
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

  // Updates the own share and gathers everybody's; a collective. The first one prints the memory:
  // rank 0 always, the others at LOGLEVEL=INFO.
  // Errors: of FinishBackward. FAILED_PRECONDITION, in the first one of stage 1, on all ranks: the
  // gradients differ, and no DistributedDataParallel averages them. UNAVAILABLE — a peer is gone.
  absl::Status Step();
  // The same for those who want a torch::optim::Optimizer; throws.
  torch::Tensor step(LossClosure closure = nullptr) override;

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

  // After the parameters were changed by others than Step: renews offload_to_cpu's copies, and the
  // masters of bf16 and fp16 parameters (FusedAdamW). In stage 3 needed for these only.
  void ParametersChanged();

  ZeroMemory Memory() const;
  ZeroStatistics Statistics() const;

  // The state of the whole optimizer, in CPU memory on rank `target`, nothing on the others; a
  // collective. Names and shapes are those of the optimizer without ZeRO: "<parameter>.exp_avg",
  // parameters counted over all groups, and "group.<number>.learning_rate".
  // Errors: UNIMPLEMENTED — the state of an optimizer made by MakeOptimizer can't be read.
  // UNAVAILABLE — a peer is gone.
  absl::StatusOr<ZeroState> ConsolidatedState(uint32_t target = 0);
  // The own share of it, in CPU memory, without communication: "<parameter>.exp_avg@<first
  // element>" [n]. All ranks' together are the whole.
  absl::StatusOr<ZeroState> ShardedState() const;
  // What of `state` belongs to this rank's share; to collect the shards of another world size.
  ZeroState OwnPart(const ZeroState& state) const;
  // Takes a whole state, or shards that together hold the own share, saved at any world size, also
  // that of a plain FusedAdamW or FusedSGD. No communication.
  // Errors: FAILED_PRECONDITION — parts are missing, or it is of another model or optimizer; the
  // text says what, and nothing was changed.
  absl::Status RestoreState(const ZeroState& state);

  // While it lives, backward passes add up gradients locally; the first one after it averages them.
  // Costs a rank the memory of all gradients. In stage 1 use DistributedDataParallel's.
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

  // While it lives, each rank has all parameters, for what one rank does alone, like SaveWeights,
  // or ranks do in different order. The constructor is a collective, and so is a Step meanwhile.
  // What is written to parameters must be the same on all ranks. Nothing in stages 1 and 2.
  // Throws as c10d.
  class WholeParameters {
   public:
    explicit WholeParameters(ZeroOptimizer& zero);
    ~WholeParameters();
    WholeParameters(const WholeParameters&) = delete;
    WholeParameters& operator=(const WholeParameters&) = delete;

   private:
    ZeroOptimizer& zero_;
  };

  // For the library itself.
  struct Implementation;
  Implementation& implementation() { return *implementation_; }
  const Implementation& implementation() const { return *implementation_; }
  // Before Context::Rejoin: leaves the generation, with what is under way. After it: shares out
  // anew what the module has, without any state; parameters of stage 3 have no values until they
  // get some. A collective. Errors: as Create's; then call it again in the next generation.
  void LetGo();
  absl::Status Rejoin(Context& context, bool init_sync);
  // What GradScaler divides: averaged gradients. Throws as FinishBackward answers.
  std::vector<torch::Tensor> ReducedGradients();
  // Whether `state` has something of each parameter in this rank's share, and all of that.
  bool Covers(const ZeroState& state) const;
  // Whether any rank says so; a collective in stages 2, 3. Throws.
  bool OnAnyRank(bool mine);
  // Stage 3: the parameters that are shared out, by their names, whole, in CPU memory on rank
  // `target`, nothing on the others; a collective. Nothing in stages 1 and 2.
  absl::StatusOr<ZeroState> SharedOutParameters(uint32_t target) const;
  // Takes the own share of one of those. False: it isn't one. No communication. Throws.
  bool TakeParameter(const std::string& name, const torch::Tensor& whole);

 private:
  explicit ZeroOptimizer(std::unique_ptr<Implementation> implementation);

  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_ZERO_OPTIMIZER_H_
