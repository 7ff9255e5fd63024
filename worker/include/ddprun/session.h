#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/context.h"
#include "ddprun/dataset.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/evaluation.h"
#include "ddprun/metrics.h"
#include "ddprun/optimizer_kind.h"
#include "ddprun/own_state.h"
#include "ddprun/run_session.h"
#include "ddprun/session_model.h"
#include "ddprun/session_options.h"
#include "ddprun/status_error.h"

// A training program: model, data and loss are the program's, all else is the Session's.
//
//   int main(int argc, char** argv) {
//     return ddprun::RunSession(argc, argv, {.name = "train"}, [](ddprun::Session& session) {
//       auto model = session.Prepare(Net(), ddprun::AdamW(), ddprun::TensorDataset(x, y));
//       for (const ddprun::Batch& batch : session.Batches()) {
//         session.Backward(cross_entropy(model(batch.inputs), batch.targets));
//         session.Step();
//       }
//     });
//   }
//
// TrainingOptions say how to train; the command line overrides the program's: --max_grad_norm 1.
//
// Errors at this level are exceptions: StatusError, beside what LibTorch throws (docs/decisions,
// 79). The parts that a Session is made of stay usable without it, and answer absl::Status.
namespace ddprun {
class ExponentialMovingAverage;

// One training of one model on all workers.
//
// Each sample is learned from exactly once an epoch, whatever happens (docs/DATA.md): the place in
// the data is committed with each step and saved with the model, for any number of workers. An
// epoch's last step has the rest of the samples; ranks without any get samples that don't count.
//
// By default on CPUs, and with --in_process_restart anywhere, a worker that lives goes on in its
// process when another one fails, or nodes come and go. All workers, new ones too, do the step that
// was under way again, from the state of the rank that had come furthest; with ZeRO from the newest
// state that has copies of all shares, at most one step older, or, if more workers were lost than
// there are copies, from the newest whole checkpoint. With --healing beside a new worker's model
// may have the state only when its first Step() returns. The program notices only a batch that
// comes again and a Step() that returns false; it Add()s what it keeps between steps. An error of a
// collective of its own (SumOverRanks outside of an evaluation; WholeParameters) ends the process.
//
// With the same number of workers, faults and resumes don't change a bit of the result (exceptions:
// docs/CPP.md, "The same bits"): each step sets torch's generators from seed, step and rank.
//
// Errors: all methods throw StatusError. FAILED_PRECONDITION — called out of order; the text says
// what is missing. DATA_LOSS — checkpoints are damaged (see Prepare), or, from the loop, a share of
// the state is gone with its worker and no checkpoint has it. Others: those of the runtime's parts.
// Collectives, called by all ranks in the same order: the constructor, Prepare, the loop over
// Batches, Backward, Step, Save, SumOverRanks, WholeParameters. Threads: one.
class Session {
 public:
  // Meets the other workers, and seeds torch's generator, so that all ranks make the same model.
  // One at a time in a process; for several see RunSessions. Errors: INVALID_ARGUMENT — options
  // that don't fit together; an earlier Session has the folder of checkpoints. Context::Create's.
  explicit Session(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Makes everything that training needs, and goes on from the newest checkpoint, if there is one.
  // Parameters in none of `groups` are trained as the options say. Once in a session. Optimizers
  // beside AdamW() and Sgd(): OptimizerOf in ddprun/any_optimizer.h.
  // Errors: INVALID_ARGUMENT — no samples; options that don't fit together or to the model.
  // FAILED_PRECONDITION — a checkpoint of another model or optimizer. DATA_LOSS — no checkpoint is
  // whole: the text names the newest, and what to delete to begin anew. NOT_FOUND — --resume_from.
  template <typename Module>
  SessionModelOf<Module> Prepare(const Module& module, const OptimizerKind& optimizer, Dataset data,
                                 std::vector<ParameterGroup> groups = {}) {
    CheckPrepare(data);
    auto model = Add("", module, optimizer, std::move(groups));
    Prepare(std::move(data));
    return model;
  }

  // For a training of several modules, as of a GAN: each module has an optimizer and a step of its
  // own. All are in one checkpoint, where the names of a module that was added as "critic" have the
  // prefix "critic.". Not with a zero_stage, power_sgd or --healing beside. If this process can
  // survive the loss of a worker, each step copies all parameters and states before it changes any.
  template <typename Module>
  SessionModelOf<Module> Add(const std::string& name, const Module& module,
                             const OptimizerKind& optimizer,
                             std::vector<ParameterGroup> groups = {}) {
    const auto pointer = HeldModule(module);
    const size_t part = AddModule(name, pointer, optimizer, std::move(groups));
    return SessionModelOf<Module>(*this, pointer, part);
  }

  // Adds a state that the program keeps between steps (ddprun/own_state.h), the same on all ranks:
  // it is saved and restored with the model, given to new workers, and put back if a step is done
  // again. Before Prepare. Checkpoints are then saved when the loop asks for the next batch.
  void Add(const std::string& name, const OwnState& state);
  void Prepare(Dataset data);  // the added modules

  // Sets the rate of each step, from 0, at the present number of workers, in place of the options'
  // schedule. A group's rate is multiplied by its factor. Before the loop; on all ranks alike.
  void LearningRateWith(std::function<double(int64_t step)> rate);

  // Adds an evaluation, under a name of its own. Before the loop.
  void EvaluateWith(Evaluation evaluation);

  // The batches of this rank that are still to be trained on, on the context's device: one for each
  // backward pass. Between two batches the session saves, evaluates and reports. Before the loop
  // ends it saves the last state, also if the launcher has asked all ranks to stop early.
  // From a batch to its Backward everything runs under the options' mixed precision. Break out of
  // the loop only after a Step(); steps after the newest checkpoint aren't saved then.
  class BatchRange;
  BatchRange Batches();

  // The backward pass of a batch: `loss` is one number, made from what the model returned.
  // Gradients of several batches add up as --gradient_accumulation_steps says, and are averaged
  // over all ranks in the last of them. For fp16 they are scaled.
  void Backward(const torch::Tensor& loss);

  // Ends a batch. At the end of the last batch of a step, gradients are clipped as --max_grad_norm
  // says, the optimizer steps, and a checkpoint is saved if it is due. Saving goes on beside
  // training; an error of it ends training at the next checkpoint.
  // Returns whether the optimizer stepped: not between accumulated batches, nor if gradients
  // overflowed in fp16, nor if the step will be done again.
  bool Step();

  // With several modules: the backward pass of one module's loss, for its parameters alone, and the
  // step of its optimizer. Step() then ends the batch, and steps the modules that still have
  // gradients. The losses shown are sums.
  template <typename Impl>
  void Backward(const torch::Tensor& loss, const SessionModel<Impl>& of) {
    BackwardOf(of.part(), loss);
  }
  template <typename Impl>
  bool Step(const SessionModel<Impl>& of) {
    return StepOf(of.part());
  }

  // In place of Backward() and Step(), for an optimizer that asks for the loss several times a step
  // (LBFGS): `loss` returns the loss of the given batch, which may be another than the loop's.
  bool Step(const std::function<torch::Tensor(const Batch& batch)>& loss);

  // Stops early, after this step. On all ranks alike, in the loop or an evaluation.
  void StopTraining();

  // Saves a checkpoint now, if the options keep any, and waits until it is written. With
  // --in_process_restart the save is given up if another worker fails meanwhile.
  void Save();

  Context& context();
  const TrainingOptions& options() const;
  torch::Device device() { return context().device(); }
  // Optimizer steps and epochs done, those of earlier starts included.
  int64_t step() const;
  int64_t epoch() const;
  bool stopped() const;  // the launcher asked all ranks to stop; false after StopTraining()
  // After Prepare. Only Step() may step it: a step of the program's own is FAILED_PRECONDITION.
  torch::optim::Optimizer& optimizer();
  ExponentialMovingAverage* average();  // after Prepare; null without --ema_decay
  Metrics& metrics();                   // after Prepare
  // The rows that this rank evaluates, of so many: [n] int64.
  torch::Tensor OwnRows(int64_t rows);
  // The sum of one number over all ranks; a collective.
  double SumOverRanks(const torch::Tensor& number);
  // --zero_stage 3: while what this returns lives, all ranks have all parameters, and one of them
  // may save the model or use it alone. After the loop, or between a Step() and the next batch.
  [[nodiscard]] std::shared_ptr<const void> WholeParameters();

  // For SessionModel.
  template <typename Function>
  auto Forward(size_t part, Function&& forward) {
    if (DistributedDataParallel* ddp = nullptr; BeginForward(part, &ddp)) {
      try {
        return ddp != nullptr ? ddp->Forward(forward) : forward();
      } catch (...) {
        OnForwardError();
      }
    }
    return forward();
  }

 private:
  struct Implementation;

  void CheckPrepare(const Dataset& data) const;
  size_t AddModule(std::string name, std::shared_ptr<torch::nn::Module> module,
                   const OptimizerKind& optimizer, std::vector<ParameterGroup> groups);
  void BackwardOf(size_t part, const torch::Tensor& loss);
  bool StepOf(size_t part);
  // Returns whether this is a forward pass of training. Sets `ddp`, through which it must go unless
  // that is null.
  bool BeginForward(size_t part, DistributedDataParallel** ddp);
  // Rethrows the current exception, unless the step will be done again: its results don't count.
  void OnForwardError();
  // The next batch; null: training is over.
  const Batch* Advance();

  std::unique_ptr<Implementation> implementation_;
};

class Session::BatchRange {
 public:
  class Iterator {
   public:
    explicit Iterator(Session* session) : session_(session) {
      if (session_ != nullptr) ++*this;
    }
    const Batch& operator*() const { return *batch_; }
    const Batch* operator->() const { return batch_; }
    Iterator& operator++() {
      batch_ = session_->Advance();
      return *this;
    }
    bool operator==(const Iterator& other) const { return batch_ == other.batch_; }

   private:
    Session* session_;
    const Batch* batch_ = nullptr;
  };

  explicit BatchRange(Session& session) : session_(session) {}
  Iterator begin() { return Iterator(&session_); }
  Iterator end() { return Iterator(nullptr); }

 private:
  Session& session_;
};

template <typename Impl>
template <typename... Arguments>
auto SessionModel<Impl>::operator()(Arguments&&... arguments) const {
  // Not moved: after the loss of a peer the module is called once more.
  return session_->Forward(part_, [&] { return module_->forward(arguments...); });
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_H_
