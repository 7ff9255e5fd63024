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
  // The folder of the files, created if missing; "" = no files. If rank 0 may move to another node,
  // the folder must be on a file system that the nodes share.
  std::string output_dir = {};
  bool json_lines = true;   // <output_dir>/metrics.jsonl
  bool tensorboard = true;  // <output_dir>/tensorboard/events.out.tfevents.…
  MetricsConsole console = MetricsConsole::kAuto;
  // A record is made at each step that this number divides, and at the last one; from 1.
  int64_t every_steps = 10;
  // For the progress and the time left; 0 = unknown.
  int64_t total_steps = 0;
  // The step after which training is resumed. Records of an earlier start above this step are
  // removed, because these steps are done once more.
  int64_t resumed_step = 0;
  // The shortest time between two lines of a log; records in between go only to the files.
  absl::Duration line_interval = absl::Seconds(10);
  // How long after a write the data may take to survive a crash of the machine; a crash of the
  // process they survive at once.
  absl::Duration sync_interval = absl::Seconds(5);
  // True: a record has figures of all ranks, at the cost of one all-gather of a hundred bytes, and
  // every rank must make records at the same steps. False, as inside Join: of rank 0 alone.
  bool combine_ranks = true;
};

// What this rank's training loop knows about a step.
struct StepMetrics {
  int64_t step = 0;         // optimizer steps that are done, this one included; grows
  torch::Tensor loss = {};  // of this rank's batch: one number, on any device; undefined = none
  double learning_rate = 0;
  int64_t samples = 0;                       // that this rank trained on in this step
  absl::Duration data_time = {};             // of this step, waiting for its samples
  std::optional<double> gradient_norm = {};  // before clipping
};

// Reports how training goes: on rank 0's console, as JSON lines and as event files for TensorBoard.
// docs/METRICS.md lists the fields of a record and their units.
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
// If a file can't be written any more, Metrics logs that once, and training goes on. Threads: one.
// Requires: the context, and a watched DistributedDataParallel, outlive it.
class Metrics {
 public:
  // Called by all ranks; only rank 0 makes files.
  // Errors: INVALID_ARGUMENT — a number is out of its range. Others — the errno of mkdir(2) or
  // open(2), with the path.
  static absl::StatusOr<std::unique_ptr<Metrics>> Create(Context& context,
                                                         const MetricsOptions& options);
  // Syncs the files to disk.
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Adds the communication's time and its overlap with the backward pass to records from now on.
  void Watch(const DistributedDataParallel& ddp);

  // Call it after each optimizer step. The loss tensor is kept until a record is due, and read
  // then, which waits for the GPU. A record's loss is the mean since the record before.
  // Errors: UNAVAILABLE, "PeerError: …" — another worker is gone. INTERNAL — LibTorch refused.
  absl::Status Step(const StepMetrics& metrics);

  // Call it after work that isn't training (an evaluation, a checkpoint): the next step's time
  // counts from here.
  void RestartClock();

  // Writes one more figure into the files, at once: Scalar("evaluation/accuracy", step, 0.97). Does
  // nothing on ranks other than 0. Requires: no field of a record has this name.
  void Scalar(const std::string& name, int64_t step, double value);

  // Syncs the files, so that what is written survives a crash of the machine.
  void Flush();

  // For a Session, in which one object reports in all generations. Close: writes nothing more.
  // GoOnAs: reports as `next` does from now on.
  void Close();
  void GoOnAs(std::unique_ptr<Metrics> next);

  struct Implementation;

 private:
  explicit Metrics(std::unique_ptr<Implementation> implementation);

  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_METRICS_H_
