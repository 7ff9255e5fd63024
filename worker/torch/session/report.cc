#include "worker/torch/session/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "ddprun/parameters.h"
#include "ddprun/start_banner.h"
#include "worker/torch/optim/master_parameters.h"

namespace ddprun::worker {
namespace {

// The loss is read every so many steps, for the metrics and to check that it is finite.
constexpr int64_t kNotifyEvery = 10;

// The precision of products, or, without mixed precision, of parameters.
std::string PrecisionText(const std::string& mixed_precision, const torch::nn::Module& module) {
  if (mixed_precision != "no") return mixed_precision;
  for (const torch::Tensor& parameter : Parameters(module)) {
    if (!HasMaster(parameter.scalar_type())) continue;
    return absl::StrCat(parameter.scalar_type() == torch::kHalf ? "fp16" : "bf16",
                        " with fp32 masters");
  }
  return "fp32";
}

}  // namespace

absl::StatusOr<Journal> Journal::Open(const std::string& path) {
  Journal journal;
  journal.path_ = path;
  journal.fd_.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!journal.fd_.valid()) return ErrnoStatus(errno, absl::StrCat("open journal '", path, "'"));
  return journal;
}

absl::Status Journal::Write(const Line& line) const {
  if (!fd_.valid()) return absl::OkStatus();
  const nlohmann::ordered_json json = {
      {"t", static_cast<double>(MonotonicNow().nanoseconds()) / 1e9},
      {"generation", line.generation},
      {"rank", line.rank},
      {"world", line.world},
      {"step", line.step},
      {"loss", line.loss},
      {"pid", getpid()}};
  const absl::Status written = WriteAll(fd_.get(), absl::StrCat(json.dump(), "\n"));
  if (written.ok()) return written;
  return {written.code(), absl::StrCat("journal '", path_, "': ", written.message())};
}

void Report::ShowBanner(Context& context, const TrainedModel& trained, const SampleFeed& feed,
                        int64_t total_steps) const {
  const TrainingOptions& options = settings_.training;
  const torch::nn::Module& module = *trained.module();
  int64_t parameters = 0;
  for (const torch::Tensor& parameter : Parameters(module)) parameters += parameter.numel();
  PrintStartBanner(context, {.program = settings_.name,
                             .precision = PrecisionText(options.mixed_precision, module),
                             .batch_size = options.batch_size,
                             .gradient_accumulation_steps = options.gradient_accumulation_steps,
                             .global_batch = feed.GlobalBatch(),
                             .dataset_samples = feed.data().size,
                             .steps_per_epoch = feed.StepsPerEpoch(),
                             .epochs = options.steps > 0 ? 0 : options.epochs,
                             .total_steps = total_steps,
                             .parameters = parameters});
}

absl::Status Report::Begin(Context& context, bool is_alone, const TrainedModel& trained,
                           const SampleFeed& feed, int64_t step, int64_t total_steps) {
  const TrainingOptions& options = settings_.training;
  speaks_ = context.is_main() && !is_alone;
  if (!options.journal.empty() && speaks_ && !journal_.is_open()) {
    DDPRUN_ASSIGN_OR_RETURN(journal_, Journal::Open(options.journal));
  }
  if (!std::exchange(has_begun_, true) && !is_alone) {
    ShowBanner(context, trained, feed, total_steps);
  }
  DDPRUN_ASSIGN_OR_RETURN(
      std::unique_ptr<Metrics> metrics,
      Metrics::Create(context, {.output_dir = is_alone ? "" : options.output_dir,
                                .every_steps = kNotifyEvery,
                                .total_steps = total_steps,
                                .resumed_step = step}));
  if (metrics_ == nullptr) {
    metrics_ = std::move(metrics);
  } else {
    metrics_->GoOnAs(std::move(metrics));
  }
  for (const SessionPart& part : trained.parts()) {
    if (part.ddp != nullptr) metrics_->Watch(*part.ddp);
  }
  return absl::OkStatus();
}

bool Report::ReadsLoss(const StepMetrics& step) const {
  return WritesJournal(step) || step.step % kNotifyEvery == 0;
}

absl::Status Report::Step(Context& context, const StepMetrics& step) {
  DDPRUN_RETURN_IF_ERROR(metrics_->Step(step));
  if (!WritesJournal(step)) return absl::OkStatus();
  return journal_.Write({.generation = context.generation(),
                         .rank = context.rank(),
                         .world = context.world_size(),
                         .step = step.step,
                         .loss = step.loss.item<double>()});
}

}  // namespace ddprun::worker
