#ifndef DDPRUN_WORKER_TORCH_SESSION_REPORT_H_
#define DDPRUN_WORKER_TORCH_SESSION_REPORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "ddprun/context.h"
#include "ddprun/metrics.h"
#include "ddprun/session_options.h"
#include "worker/torch/session/sample_feed.h"
#include "worker/torch/session/trained_model.h"

namespace ddprun::worker {

// One JSON line for each training step: {"t": CLOCK_MONOTONIC seconds, "generation", "rank",
// "world", "step", "loss", "pid"}. Workers of all generations append to one file.
class Journal {
 public:
  // Drops everything.
  Journal() = default;
  // Errors: of open(2), with the path.
  static absl::StatusOr<Journal> Open(const std::string& path);

  struct Line {
    uint64_t generation = 0;
    uint32_t rank = 0;
    uint32_t world = 0;
    int64_t step = 0;
    double loss = 0;
  };
  // Errors: of write(2), with the path.
  absl::Status Write(const Line& line) const;
  bool is_open() const { return fd_.valid(); }

 private:
  std::string path_;
  Fd fd_;
};

// What a Session reports of its steps: a banner once, metrics, and lines of a journal. Decides when
// the loss is read, for which a GPU must be waited for. Threads: one.
class Report {
 public:
  // Requires: `settings` outlive it.
  explicit Report(const SessionOptions& settings) : settings_(settings) {}

  // Begins in a generation. Params: is_alone: other ranks have ended this Session, so this one
  // writes nothing. step: the last one that was done. total_steps: of the whole training.
  // Errors: those of Journal::Open and Metrics::Create.
  absl::Status Begin(Context& context, bool is_alone, const TrainedModel& trained,
                     const SampleFeed& feed, int64_t step, int64_t total_steps);
  bool has_begun() const { return has_begun_; }
  // Leaves the generation. Call it before what `trained` has made for it is gone.
  void LetGo() {
    if (metrics_ != nullptr) metrics_->Close();
  }

  Metrics* metrics() const { return metrics_.get(); }  // null: not begun; else always the same

  // Whether Step will read the loss, or it is time to look whether it is finite.
  bool ReadsLoss(const StepMetrics& step) const;
  // Errors: those of Metrics::Step and Journal::Write.
  absl::Status Step(Context& context, const StepMetrics& step);

 private:
  void ShowBanner(Context& context, const TrainedModel& trained, const SampleFeed& feed,
                  int64_t total_steps) const;
  bool WritesJournal(const StepMetrics& step) const {
    return speaks_ && journal_.is_open() && step.loss.defined();
  }

  const SessionOptions& settings_;
  Journal journal_;
  std::unique_ptr<Metrics> metrics_;
  bool has_begun_ = false;
  bool speaks_ = false;  // this rank writes files
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_REPORT_H_
