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

// A running mean of a module's parameters over its steps, which often does better than the last
// parameters: after each step average = decay * average + (1 - decay) * parameter; after the first
// one it is the parameters.
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
// Buffers are not averaged: those of the module count. With a ZeroOptimizer each rank has the
// average of its share, 1/W of it, where the optimizer's state is. Of a parameter that is narrower
// than float32 the average is float32, and of the optimizer's float32 copy where that has one.
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

  // After an optimizer's step that was done, not one that was left out. No communication.
  void Update();
  // Whether there is an average: not before the first Update.
  bool has_begun() const { return has_begun_; }
  // The next Update begins anew.
  void Forget();

  // While it lives, the averages are in the parameters' place, for an evaluation or SaveWeights;
  // nothing changes where there is none yet. It keeps the parameters, which takes as much memory
  // once more. Constructor and PutBack are collectives with a ZeroOptimizer, and throw, or answer,
  // as c10d. Requires: no backward pass or step meanwhile, nor an Update or a checkpoint.
  class InPlace {
   public:
    explicit InPlace(ExponentialMovingAverage& average);
    // Puts back if that wasn't done. On the way of an exception not by a collective, which the
    // others may not be in: with a ZeroOptimizer the own share only.
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
  // The averages by their parameters' names; none before the first Update. With a ZeroOptimizer a
  // collective: whole, in CPU memory on rank `target`, nothing on the others; else the averages
  // themselves. Errors: FAILED_PRECONDITION — an InPlace lives. UNAVAILABLE — a peer is gone.
  absl::StatusOr<Tensors> Whole(uint32_t target) const;
  // Takes that; other names in it don't matter. Empty: begins anew. No communication.
  // Errors: FAILED_PRECONDITION — one is missing or has another shape; nothing was changed.
  absl::Status Restore(const Tensors& whole);
  // With a ZeroOptimizer: the own share, in CPU memory a view of it: "<parameter>.average@<first
  // element>" [n], as ZeroOptimizer::ShardedState, and "averaged"; none before the first Update.
  // And takes it from parts that together hold it, dealt out however. Errors: as Restore's.
  Tensors OwnShare() const;
  absl::Status RestoreShare(const Tensors& parts);

 private:
  // What is averaged: parameters, or the own pieces of them; and the same where there are float32
  // copies. Each of a floating-point type.
  std::vector<torch::Tensor> Parameters() const;
  std::vector<torch::Tensor> Values() const;
  // The parameters' new values go where they belong.
  void BeforeChange();
  void Publish();

  const std::shared_ptr<torch::nn::Module> module_;
  torch::optim::Optimizer& optimizer_;
  const double decay_;
  bool has_begun_ = false;               // the same on all ranks
  std::vector<torch::Tensor> averages_;  // then, of Parameters(), of which a rank may have none
  bool in_place_ = false;                // they are in the parameters' place
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_EXPONENTIAL_MOVING_AVERAGE_H_
