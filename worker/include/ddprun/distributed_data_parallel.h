#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_DISTRIBUTED_DATA_PARALLEL_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_DISTRIBUTED_DATA_PARALLEL_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/communication_hook.h"
#include "ddprun/context.h"

namespace ddprun {

// The options of torch.nn.parallel.DistributedDataParallel, with its defaults.
struct DistributedDataParallelOptions {
  // Size of the gradient buckets in MiB; unset: 25, the first bucket 1, so that it leaves early.
  std::optional<double> bucket_cap_mb = {};
  // Gradients are views into the buckets: no copy, but ZeroGrad must not free them.
  bool gradient_as_bucket_view = false;
  // Some parameters get no gradient in some steps. Costs a walk over the graph a step.
  bool find_unused_parameters = false;
  // The set of used parameters, and the order, are the same in every step.
  bool static_graph = false;
  // Rank 0's buffers (BatchNorm's statistics) go to all ranks before each forward pass.
  bool broadcast_buffers = true;
  // Buffers go in FinishStep() alone, which each step then calls. So a step may make several
  // forward passes before a backward pass, which needs the buffers unchanged.
  bool broadcast_buffers_once_a_step = false;
  // At the start rank 0's parameters and buffers go to all ranks; false: they are equal already.
  bool init_sync = true;
  // How gradients are averaged: by one of LibTorch's hooks, or by the user's. At most one of both.
  BuiltInHook built_in_hook = BuiltInHook::kNone;
  std::shared_ptr<CommunicationHook> communication_hook = {};
  // For Statistics(): the first ten steps are measured, then one in this many; from 1.
  int statistics_every = 100;
};

// The options of torch's join(), with its defaults.
struct JoinOptions {
  // Gradients are divided by the number of all ranks, so that each sample weighs the same; false:
  // by the number of those that still have inputs. A communication hook divides as it likes.
  bool divide_by_initial_world_size = true;
  // The first rank without inputs ends training on all ranks, with an error.
  bool throw_on_early_termination = false;
};

// What c10d's logger measures (get_ddp_logging_data of torch 2.11). Averages over the measured
// steps; zero before the first of them.
struct DistributedDataParallelStatistics {
  int64_t step = 0;                   // backward passes that averaged, up to the last measured one
  std::vector<int64_t> bucket_bytes;  // of each bucket, as cut now
  std::string communication_hook;     // "" = none
  absl::Duration forward;
  absl::Duration backward;       // computation, from its start to the last gradient
  absl::Duration communication;  // from the first bucket's start to the last one's end
  absl::Duration overlap;        // of communication with the backward pass
  // Everything else that the logger knows, by its names there; times in nanoseconds.
  std::map<std::string, int64_t> integers;
  std::map<std::string, std::string> strings;
};

// What a forward pass may return: outputs are where DistributedDataParallel finds the graph.
template <typename Output>
inline constexpr bool kIsForwardOutput =
    std::is_same_v<std::remove_cvref_t<Output>, torch::Tensor> ||
    std::is_same_v<std::remove_cvref_t<Output>, std::vector<torch::Tensor>>;

// Data-parallel training of one module over c10d::Reducer: gradients are averaged over all ranks in
// buckets, while the rest of the backward pass still runs. Bit-identical with Python's.
//
//   ddp->ZeroGrad();
//   auto loss = cross_entropy(ddp->Forward([&] { return model->forward(batch); }), target);
//   loss.backward();   // throws when a peer dies; RunWorker turns that into the error file
//   optimizer.step();
//
// Threads: one. Requires: the context outlives it; the same module and options on every rank.
class DistributedDataParallel {
 public:
  // Copies rank 0's parameters and buffers to all ranks.
  // Errors: INVALID_ARGUMENT — no parameter needs a gradient, one is on another device than the
  // context's, an option is out of its range, or module or options differ between the ranks: then
  // every rank gets the text that names the rank and its first parameter that differs. UNAVAILABLE
  // — a peer is gone.
  static absl::StatusOr<std::unique_ptr<DistributedDataParallel>> Create(
      std::shared_ptr<torch::nn::Module> module, Context& context,
      const DistributedDataParallelOptions& options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Runs the module's forward pass, `forward`, which returns a tensor or a vector of tensors; the
  // loss must be made from what this returns.
  template <typename Function>
  auto Forward(Function&& forward) {
    if constexpr (kIsForwardOutput<decltype(forward())>) {
      BeforeForward();
      return AfterForward(std::forward<Function>(forward)());
    } else {
      static_assert(kIsForwardOutput<decltype(forward())>,
                    "the model's forward() must return a torch::Tensor or a "
                    "std::vector<torch::Tensor>: of a tuple, as of torch::nn::GRU and LSTM, put "
                    "what the loss needs into one, in a module of your own");
      return forward();  // no second error
    }
  }

  // Clears the gradients, as optimizer.zero_grad() does; keeps bucket views that any pass uses.
  void ZeroGrad();

  // Trains on inputs whose number differs between the ranks: runs `train`, in which some ranks call
  // Forward more often than others. A rank whose `train` has returned takes part with gradients of
  // zero until all have. Then all ranks have the parameters and buffers of a rank that came last.
  // `train` must not communicate in other ways, and returns the first error that it sees.
  // Errors: train's own, which skip all waiting. UNAVAILABLE — a peer is gone. INTERNAL — ranks had
  // different numbers of inputs with throw_on_early_termination. FAILED_PRECONDITION — inside Join.
  absl::Status Join(const std::function<absl::Status()>& train, const JoinOptions& options = {});

  // For training loops whose state between two steps must not depend on the age of this object
  // (docs/CPP.md, "The same bits"). Call it after a backward pass that averaged: it does what the
  // next forward pass would do first. All ranks get rank 0's buffers, so that they outlive rank 0,
  // and buckets get the order in which the first step's gradients came. A collective; not inside
  // Join. Returns whether the state of buckets() changed. Errors: UNAVAILABLE — a peer is gone.
  absl::StatusOr<bool> FinishStep();

  // The places of gradients in buckets, on which the last bits of an average depend: for
  // Checkpointer::Add, between two steps. Its RestoreState clears the gradients, and ignores a
  // state of other options.
  CheckpointedState& buckets();

  // Figures of the last measured step.
  DistributedDataParallelStatistics Statistics() const;

  // The parameters that need gradients, in the module's order.
  const std::vector<torch::Tensor>& parameters() const;

  // While a NoSync lives, backward passes add up gradients on this rank; the first pass after it
  // averages them.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    const bool before_;
  };

  // For the library itself.
  struct Implementation;

 private:
  explicit DistributedDataParallel(std::shared_ptr<Implementation> implementation);
  void BeforeForward();
  torch::Tensor AfterForward(torch::Tensor output);
  std::vector<torch::Tensor> AfterForward(std::vector<torch::Tensor> outputs);

  std::shared_ptr<Implementation> implementation_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_DISTRIBUTED_DATA_PARALLEL_H_
