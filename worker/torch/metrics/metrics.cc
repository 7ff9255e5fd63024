#include "ddprun/metrics.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/metrics/figures.h"
#include "worker/metrics/metrics_log.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun {

using worker::RankFigures;

struct Metrics::Implementation {
  Implementation(Context& place, MetricsOptions wanted)
      : context(place), options(std::move(wanted)), clock(MonotonicNow()) {}

  bool IsRecordDue(int64_t step) const {
    return step % options.every_steps == 0 ||
           (options.total_steps > 0 && step == options.total_steps);
  }
  RankFigures TakeFigures(const StepMetrics& last);
  // Requires: there are losses.
  void TakeLoss(RankFigures& figures) const;
  absl::StatusOr<worker::MetricsRecord> MakeRecord(const StepMetrics& last);

  Context& context;
  const MetricsOptions options;
  worker::StepClock clock;
  const DistributedDataParallel* ddp = nullptr;
  std::unique_ptr<worker::MetricsLog> log;  // rank 0's
  // The losses since the last record.
  struct Loss {
    torch::Tensor mean;  // of this rank's samples of a step
    int64_t samples = 0;
  };
  std::vector<Loss> losses;
  int64_t samples = 0;
  absl::Duration data_time;
};

namespace {

constexpr auto kLocalCount = static_cast<int64_t>(worker::kRankFigures);

absl::Status CheckOptions(const MetricsOptions& options) {
  if (options.every_steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("every_steps is ", options.every_steps, "; give a number of steps from 1"));
  }
  if (options.total_steps < 0 || options.resumed_step < 0) {
    return absl::InvalidArgumentError(absl::StrCat("total_steps is ", options.total_steps,
                                                   " and resumed_step ", options.resumed_step,
                                                   "; neither can be below 0"));
  }
  if (options.sync_interval <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sync_interval is ", absl::FormatDuration(options.sync_interval), "; give a time above 0"));
  }
  return absl::OkStatus();
}

worker::ConsoleKind KindOf(MetricsConsole console) {
  switch (console) {
    case MetricsConsole::kAuto:
      return worker::ConsoleKindFor(STDERR_FILENO);
    case MetricsConsole::kProgressBar:
      return worker::ConsoleKind::kProgressBar;
    case MetricsConsole::kLines:
      return worker::ConsoleKind::kLines;
    case MetricsConsole::kNone:
      break;
  }
  return worker::ConsoleKind::kNone;
}

// The most memory that tensors had, without what the allocator caches.
double GpuMemoryBytes(torch::Device device) {
  if (!device.is_cuda()) return 0;
  const auto statistics = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<double>(statistics.allocated_bytes.at(kAll).peak);
}

// Exchanges all ranks' figures; returns them by rank.
absl::StatusOr<std::vector<RankFigures>> Exchange(Context& context, const RankFigures& own) {
  auto numbers = worker::ToNumbers(own);
  const torch::Tensor mine =
      at::tensor(at::ArrayRef<double>(numbers), torch::kDouble).to(context.device());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> all, context.AllGather(mine));
  std::vector<RankFigures> figures;
  for (const torch::Tensor& one : all) {
    const torch::Tensor here = one.cpu();
    std::copy_n(here.const_data_ptr<double>(), kLocalCount, numbers.begin());
    figures.push_back(worker::FromNumbers(numbers));
  }
  return figures;
}

}  // namespace

// Every sample has the same weight, in whichever step and on whichever rank it was. Steps without a
// number of samples have equal weights.
void Metrics::Implementation::TakeLoss(RankFigures& figures) const {
  std::vector<torch::Tensor> means;
  std::vector<double> weights;
  for (const Loss& loss : losses) {
    means.push_back(loss.mean.to(torch::kDouble).reshape({}));
    weights.push_back(samples > 0 ? static_cast<double>(loss.samples) : 1);
  }
  const torch::Tensor all = at::stack(means).cpu();
  const torch::Tensor of_each = at::tensor(at::ArrayRef<double>(weights), torch::kDouble);
  figures.loss_weight = of_each.sum().item<double>();
  if (figures.loss_weight == 0) return;
  figures.has_loss = 1;
  figures.loss = (all * of_each).sum().item<double>() / figures.loss_weight;
}

RankFigures Metrics::Implementation::TakeFigures(const StepMetrics& last) {
  RankFigures figures = {.learning_rate = last.learning_rate,
                         .steps = static_cast<double>(clock.interval_steps()),
                         .seconds = absl::ToDoubleSeconds(clock.interval()),
                         .samples = static_cast<double>(samples),
                         .data_seconds = absl::ToDoubleSeconds(data_time)};
  if (!losses.empty()) TakeLoss(figures);
  if (last.gradient_norm.has_value()) {
    figures.has_gradient_norm = 1;
    figures.gradient_norm = *last.gradient_norm;
  }
  // For ddprun's page and metrics, which put all ranks together themselves.
  context.implementation().progress.Report(
      losses.empty() ? std::nullopt : std::optional(figures.loss),
      figures.seconds > 0 ? std::optional(figures.samples / figures.seconds) : std::nullopt);
  figures.host_memory_bytes = static_cast<double>(worker::ResidentMemoryBytes());
  figures.gpu_memory_bytes = GpuMemoryBytes(context.device());
  if (ddp != nullptr) {
    const DistributedDataParallelStatistics statistics = ddp->Statistics();
    figures.communication_seconds = absl::ToDoubleSeconds(statistics.communication);
    figures.overlap_seconds = absl::ToDoubleSeconds(statistics.overlap);
  }
  clock.TakeInterval();
  losses.clear();
  samples = 0;
  data_time = absl::ZeroDuration();
  return figures;
}

absl::StatusOr<worker::MetricsRecord> Metrics::Implementation::MakeRecord(const StepMetrics& last) {
  const RankFigures own = TakeFigures(last);
  std::vector<RankFigures> all = {own};
  if (options.combine_ranks && context.world_size() > 1) {
    DDPRUN_ASSIGN_OR_RETURN(all, Exchange(context, own));
  }
  return worker::MetricsRecord{
      .step = last.step, .time = absl::Now(), .values = worker::CombineFigures(all)};
}

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Create(Context& context,
                                                         const MetricsOptions& options) {
  DDPRUN_RETURN_IF_ERROR(CheckOptions(options));
  auto implementation = std::make_unique<Implementation>(context, options);
  if (context.is_main()) {
    DDPRUN_ASSIGN_OR_RETURN(implementation->log,
                            worker::MetricsLog::Open({.output_dir = options.output_dir,
                                                      .json_lines = options.json_lines,
                                                      .tensorboard = options.tensorboard,
                                                      .console = KindOf(options.console),
                                                      .total_steps = options.total_steps,
                                                      .resumed_step = options.resumed_step,
                                                      .generation = context.generation(),
                                                      .line_interval = options.line_interval,
                                                      .sync_interval = options.sync_interval},
                                                     absl::Now()));
  }
  return std::unique_ptr<Metrics>(new Metrics(std::move(implementation)));
}

Metrics::Metrics(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

Metrics::~Metrics() = default;

void Metrics::Watch(const DistributedDataParallel& ddp) { implementation_->ddp = &ddp; }

absl::Status Metrics::Step(const StepMetrics& metrics) {
  Implementation& own = *implementation_;
  const Instant now = MonotonicNow();
  own.clock.Step(now);
  own.samples += metrics.samples;
  own.data_time += metrics.data_time;
  if (metrics.loss.defined()) {
    own.losses.push_back({.mean = metrics.loss.detach(), .samples = metrics.samples});
  }
  std::optional<worker::MetricsRecord> record;
  if (own.IsRecordDue(metrics.step)) {
    DDPRUN_ASSIGN_OR_RETURN(record,
                            worker::CatchExceptions([&] { return own.MakeRecord(metrics); }));
  }
  if (own.log == nullptr) return absl::OkStatus();
  if (record.has_value()) own.log->Write(*record);
  std::optional<absl::Duration> left;
  if (own.options.total_steps > 0) left = own.clock.TimeFor(own.options.total_steps - metrics.step);
  own.log->ShowStep(metrics.step, own.clock.elapsed(), left,
                    record.has_value() ? &*record : nullptr, now);
  return absl::OkStatus();
}

void Metrics::RestartClock() { implementation_->clock.Restart(MonotonicNow()); }

void Metrics::Scalar(const std::string& name, int64_t step, double value) {
  if (implementation_->log == nullptr) return;
  implementation_->log->Write({.step = step, .time = absl::Now(), .values = {{name, value}}});
}

void Metrics::Close() {
  implementation_->log.reset();
  implementation_->ddp = nullptr;
}

void Metrics::GoOnAs(std::unique_ptr<Metrics> next) {
  implementation_ = std::move(next->implementation_);
}

void Metrics::Flush() {
  if (implementation_->log != nullptr) implementation_->log->Sync();
}

}  // namespace ddprun
