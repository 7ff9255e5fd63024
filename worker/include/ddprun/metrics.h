#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_METRICS_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_METRICS_H_

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"

namespace ddprun {

// kAuto: a progress bar where standard error is a terminal, lines where it isn't.
enum class MetricsConsole { kAuto, kProgressBar, kLines, kNone };

struct MetricsOptions {
  // For the files; made when it is missing. "" = no files. Where rank 0 may move to another node it
  // must be on a file system that the nodes share.
  std::string output_dir = {};
  bool json_lines = true;   // <output_dir>/metrics.jsonl
  bool tensorboard = true;  // <output_dir>/tensorboard/events.out.tfevents.…
  MetricsConsole console = MetricsConsole::kAuto;
  // A record is made at each step whose number this divides, and at the last one; from 1.
  int64_t every_steps = 10;
  // For the share that is done and the time left; 0 = unknown.
  int64_t total_steps = 0;
  // Where training goes on: steps above it that an earlier start recorded are taken back, because
  // they are done once more.
  int64_t resumed_step = 0;
  // Between two lines of a log; a record in between goes to the files alone.
  absl::Duration line_interval = absl::Seconds(10);
  // What is written survives the process at once, and the machine after this time.
  absl::Duration sync_interval = absl::Seconds(5);
  // A record tells of all ranks, for one all-gather of a hundred bytes. Records must then come at
  // the same steps on every rank; false, as inside Join: of rank 0 alone.
  bool combine_ranks = true;
};

// What this rank's training loop knows of a step.
struct StepMetrics {
  int64_t step = 0;         // optimizer steps that are done, this one included; grows
  torch::Tensor loss = {};  // of this rank's batch: one number, on any device; undefined = none
  double learning_rate = 0;
  int64_t samples = 0;                       // that this rank trained on in this step
  absl::Duration data_time = {};             // of this step, waiting for its samples
  std::optional<double> gradient_norm = {};  // before clipping
};

// Tells how training goes: to the console of rank 0, as JSON lines and as event files that
// TensorBoard reads. docs/METRICS.md lists what a record has, and its units.
//
//   DDPRUN_ASSIGN_OR_RETURN(const auto metrics,
//                           Metrics::Create(*context, {.output_dir = "run", .total_steps = 7375}));
//   metrics->Watch(*ddp);
//   while (step < 7375) {
//     …
//     DDPRUN_RETURN_IF_ERROR(metrics->Step(
//         {.step = ++step, .loss = loss, .learning_rate = rate, .samples = batch.size(0)}));
//   }
//
// Files that can't be written any more are told of once, and training goes on. Threads: one.
// Requires: the context, and what is watched, outlive it.
class Metrics {
 public:
  // Called by all ranks; only rank 0 makes files.
  // Errors: INVALID_ARGUMENT — a number is out of its range. Others — the errno of mkdir(2) or
  // open(2), with the path.
  static absl::StatusOr<std::unique_ptr<Metrics>> Create(Context& context,
                                                         const MetricsOptions& options);
  // Makes the files safe.
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // From now on records have the communication's time and its overlap with the backward pass.
  void Watch(const DistributedDataParallel& ddp);

  // One optimizer step is done. The loss tensor is kept, and read, which waits for the GPU, when a
  // record is due. A record's loss is the mean since the record before.
  // Errors: UNAVAILABLE, "PeerError: …" — another worker is gone. INTERNAL — LibTorch refused.
  absl::Status Step(const StepMetrics& metrics);

  // The time since the last step is no training (an evaluation, a checkpoint): the next step's time
  // counts from here.
  void RestartClock();

  // One more figure, into the files only, at once: Scalar("evaluation/accuracy", step, 0.97). On
  // ranks other than 0: nothing. Requires: the name is none of a record's.
  void Scalar(const std::string& name, int64_t step, double value);

  // Makes sure that what is written survives the machine's death.
  void Flush();

  struct Implementation;

 private:
  explicit Metrics(std::unique_ptr<Implementation> implementation);

  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_METRICS_H_
