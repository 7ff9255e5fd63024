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
// How it trains is said by TrainingOptions, whose defaults the program sets and the command line
// overrides: --zero_stage 2, --mixed_precision bf16, --max_grad_norm 1, --output_dir out.
//
// Errors at this level are exceptions: StatusError, beside what LibTorch throws (docs/decisions,
// 79). The parts that a Session is made of stay usable without it, and answer absl::Status.
namespace ddprun {

class ExponentialMovingAverage;

// One training of one model on all workers.
//
// Each sample is learned from exactly once an epoch, whatever happens: an ElasticSampler deals them
// (docs/DATA.md), its place is committed with each step and saved with the model, also for another
// number of workers. An epoch's last step has what is left; a rank without any gets uncounted ones.
//
// By default on CPUs, and with --in_process_restart anywhere, a worker that lives goes on in its
// process when another one fails, or nodes come and go: the step that was under way is done again
// by all, new workers too, from the state of the rank that had come furthest (with ZeRO: of which
// all shares have copies, a step less at most; where more were lost than there are copies, from the
// newest whole checkpoint). With --healing beside a new worker may get it in its first step: its
// model then has it when Step() returns. The program notices nothing but a batch that comes again,
// and a Step() that returns false; what it keeps between steps it Add()s. An error of a collective
// of its own (SumOverRanks outside of an evaluation) ends the process.
//
// On as many workers all of this, and a resume, ends with the bits of a run to which nothing
// happened; what is excepted, and what it takes, is in docs/CPP.md, "The same bits". So torch's
// random generators are set at the beginning of each step, from the seed, the step and the rank.
//
// Errors: all methods throw StatusError. FAILED_PRECONDITION — called out of order; the text says
// what is missing. DATA_LOSS — checkpoints are damaged (see Prepare), or, from the loop, a share of
// the state is gone with its worker and no checkpoint has it. Else those of the parts that do the
// work. Collectives, called by all ranks in the same order: the constructor, Prepare, the loop over
// Batches, Backward, Step, Save, SumOverRanks.
// Threads: one.
class Session {
 public:
  // Meets the other workers; torch's generator then holds the seed, so that all make one model.
  // One at a time; any number one after the other (RunSessions). Errors: INVALID_ARGUMENT — options
  // that don't fit together; an earlier Session has the folder of checkpoints. Context's.
  explicit Session(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Makes everything that training needs, and goes on from the newest checkpoint, if there is one.
  // Parameters in none of `groups` are trained by the options alone. Once in a session.
  // Errors: INVALID_ARGUMENT — there are no samples, options that don't fit together or to
  // the model. FAILED_PRECONDITION — a checkpoint of another model or optimizer. DATA_LOSS — there
  // are checkpoints, and none is whole (older ones are tried): the text names the newest, says what
  // is wrong with it, and what to delete to begin anew. NOT_FOUND — what --resume_from names.
  template <typename Module>
  SessionModelOf<Module> Prepare(const Module& module, const OptimizerKind& optimizer, Dataset data,
                                 std::vector<ParameterGroup> groups = {}) {
    CheckPrepare(data);
    auto model = Add("", module, optimizer, std::move(groups));
    Prepare(std::move(data));
    return model;
  }

  // For a training of several modules, as of a GAN: each has an optimizer of its own, is averaged
  // over the workers and stepped for itself; all are one checkpoint, in which "critic." is before
  // the names of what was added as "critic". Without a zero_stage, power_sgd and new workers that
  // are healed beside a step; a step copies all parameters and states before the first optimizer
  // steps, where a worker's loss can be survived.
  template <typename Module>
  SessionModelOf<Module> Add(const std::string& name, const Module& module,
                             const OptimizerKind& optimizer,
                             std::vector<ParameterGroup> groups = {}) {
    const auto pointer = PointerTo(module);
    const size_t part = AddModule(name, pointer, optimizer, std::move(groups));
    return SessionModelOf<Module>(*this, pointer, part);
  }

  // What the program keeps between steps (ddprun/own_state.h), the same on all ranks: saved and
  // restored with the model, given to new workers, and put back where a step is done again. Before
  // Prepare. Checkpoints are then saved when the loop asks for the next batch.
  void Add(const std::string& name, const OwnState& state);
  void Prepare(Dataset data);  // what was added

  // In place of the options' schedule: the rate of a step, from 0 (at the present number of
  // workers), times each group's factor. Before the loop; on all ranks alike.
  void LearningRateWith(std::function<double(int64_t step)> rate);

  // One more evaluation; each needs a name of its own. Before the loop.
  void EvaluateWith(Evaluation evaluation);

  // The batches of this rank that are still to be trained on, on the context's device: one for each
  // backward pass. Between two of them the session saves, evaluates and reports; before the loop
  // ends it saves the last state, also when it ends early because all ranks were told to stop.
  // From a batch to its Backward everything runs under the options' mixed precision.
  // Leave the loop only after a Step(); what came after the newest checkpoint isn't saved then.
  class BatchRange;
  BatchRange Batches();

  // The backward pass of a batch: `loss` is one number, made from what the model returned.
  // Gradients of several batches add up as --gradient_accumulation_steps says, are averaged over
  // all ranks in the last one, and scaled for fp16.
  void Backward(const torch::Tensor& loss);

  // The end of a batch. In the last one of a step the optimizer steps: gradients are clipped as
  // --max_grad_norm says, and a checkpoint is saved when it is due, beside training: what fails
  // there ends training at the next one.
  // Returns whether the optimizer stepped: not between accumulated batches, nor when fp16 left an
  // overflow out, nor when the step is known to be done again.
  bool Step();

  // Of several modules: the backward pass of one's loss, for its parameters alone, and the step of
  // its optimizer. Step() ends the batch, and steps what has gradients left. Losses shown are sums.
  template <typename Impl>
  void Backward(const torch::Tensor& loss, const SessionModel<Impl>& of) {
    BackwardOf(of.part(), loss);
  }
  template <typename Impl>
  bool Step(const SessionModel<Impl>& of) {
    return StepOf(of.part());
  }

  // In place of both, for an optimizer that asks for the loss several times a step (LBFGS): `loss`
  // answers that of a batch, which may be another than the loop's.
  bool Step(const std::function<torch::Tensor(const Batch& batch)>& loss);

  // Ends the loop after this step: an early stop. On all ranks alike, in the loop or an evaluation.
  void StopTraining();

  // Saves a checkpoint now, where the options keep any, and waits until it is written. With
  // --in_process_restart it is given up when another worker fails meanwhile.
  void Save();

  Context& context();
  const TrainingOptions& options() const;
  torch::Device device() { return context().device(); }
  // Optimizer steps and epochs done, those of earlier starts included.
  int64_t step() const;
  int64_t epoch() const;
  bool stopped() const;  // the loop ended because all ranks were told to stop
  // After Prepare. Step() steps it; who does so besides gets FAILED_PRECONDITION.
  torch::optim::Optimizer& optimizer();
  ExponentialMovingAverage* average();  // after Prepare; null without --ema_decay
  Metrics& metrics();                   // after Prepare
  // The rows that this rank evaluates, of so many: [n] int64.
  torch::Tensor OwnRows(int64_t rows);
  // The sum of one number over all ranks; a collective.
  double SumOverRanks(const torch::Tensor& number);

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
  // Whether it is one of training; through `ddp`, where that isn't null.
  bool BeginForward(size_t part, DistributedDataParallel** ddp);
  // Throws what was thrown, unless the step will be done again: then its results don't count.
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
  return session_->Forward(part_,
                           [&] { return module_->forward(std::forward<Arguments>(arguments)...); });
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_H_
