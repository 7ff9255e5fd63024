#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_EXPONENTIAL_MOVING_AVERAGE_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_EXPONENTIAL_MOVING_AVERAGE_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

// A running mean of a module's parameters over its steps, which is often a better model than the
// last parameters. After the first step the average is the parameters; after each later step
// average = decay * average + (1 - decay) * parameter.
//
//   ddprun::ExponentialMovingAverage average(model.ptr(), optimizer, /*decay=*/0.999);
//   checkpointer.Add(average);
//   …
//   DDPRUN_ASSIGN_OR_RETURN(const bool stepped, scaler.Step(optimizer));
//   if (stepped) average.Update();
//   …
//   {
//     ddprun::ExponentialMovingAverage::InPlace averaged(average);
//     … evaluate, or SaveWeights
//     DDPRUN_RETURN_IF_ERROR(averaged.PutBack());
//   }
//
// Buffers are not averaged: the module's are used. With a ZeroOptimizer each rank has the average
// of its share, where the optimizer's state is. The average of a bf16 or fp16 parameter is float32;
// if the optimizer has a float32 master of the parameter, the master is averaged.
//
// Threads: one. Requires: module and optimizer outlive it; all ranks call its methods alike.
// Source: torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn, use_buffers=False.
//
// Checkpoints keep the trained parameters as "model.…", because training goes on from them, and the
// average as "ema.…". A Session evaluates the average and chooses the best checkpoint by it,
// because keeping one means to use it. The parameters are kept in a copy, not swapped, because the
// average may be wider.
class ExponentialMovingAverage {
 public:
  using Tensors = std::map<std::string, torch::Tensor>;

  // Params: optimizer: the one that steps the module's parameters. decay: at least 0, below 1.
  ExponentialMovingAverage(std::shared_ptr<torch::nn::Module> module,
                           torch::optim::Optimizer& optimizer, double decay);

  // Call it after each step of the optimizer, except those that were left out. No communication.
  void Update();
  // Whether there is an average: from the first Update on.
  bool has_begun() const { return has_begun_; }
  // The next Update begins anew.
  void Forget();

  // While an InPlace lives, the parameters hold the averages, for an evaluation or SaveWeights;
  // before the first Update nothing changes. InPlace keeps a copy of the parameters. With a
  // ZeroOptimizer the constructor and PutBack are collectives, with c10d's exceptions and errors.
  // Requires: no backward pass, step, Update or checkpoint meanwhile.
  class InPlace {
   public:
    explicit InPlace(ExponentialMovingAverage& average);
    // Puts the parameters back if PutBack hasn't. During an exception other ranks may not take part
    // in a collective: then, with a ZeroOptimizer, puts back the own share only.
    ~InPlace();
    InPlace(const InPlace&) = delete;
    InPlace& operator=(const InPlace&) = delete;

    absl::Status PutBack();

   private:
    void PutBackOwn();

    ExponentialMovingAverage& average_;
    std::vector<torch::Tensor> kept_;
    const int exceptions_;
  };

  // For the library itself: checkpoints and peers.
  //
  // The averages by their parameters' names; empty before the first Update. With a ZeroOptimizer a
  // collective: whole averages in CPU memory on rank `target`, nothing on the others. Without one
  // the averages themselves. Errors: FAILED_PRECONDITION — an InPlace lives. UNAVAILABLE — a peer
  // is gone.
  absl::StatusOr<Tensors> Whole(uint32_t target) const;
  // Takes the averages from `whole` and ignores other names. Empty: the next Update begins anew. No
  // communication.
  // Errors: FAILED_PRECONDITION — an average is missing or has another shape; nothing was changed.
  absl::Status Restore(const Tensors& whole);
  // With a ZeroOptimizer: the own share (a view if it is in CPU memory) as
  // "<parameter>.average@<first element>" [n], like ZeroOptimizer::ShardedState, and "averaged".
  // Empty before the first Update.
  Tensors OwnShare() const;
  // Takes the own share from parts that together hold it, however they were cut. Errors: as
  // Restore's.
  absl::Status RestoreShare(const Tensors& parts);

 private:
  // The floating-point parameters, or this rank's pieces of them.
  std::vector<torch::Tensor> Parameters() const;
  // As Parameters(), with the float32 masters in place of those that have one.
  std::vector<torch::Tensor> Values() const;
  // Before and after a change of parameters; for the shares of a ZeroOptimizer.
  void BeforeChange();
  void Publish();

  const std::shared_ptr<torch::nn::Module> module_;
  torch::optim::Optimizer& optimizer_;
  const double decay_;
  bool has_begun_ = false;               // the same on all ranks
  std::vector<torch::Tensor> averages_;  // of Values() from then on; empty on a rank without pieces
  bool in_place_ = false;                // an InPlace lives
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_EXPONENTIAL_MOVING_AVERAGE_H_
