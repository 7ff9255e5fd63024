#include "rendezvous/wire/training.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

v1::TrainingStatus ToProto(const TrainingReport& report) {
  v1::TrainingStatus proto;
  if (report.loss.has_value()) proto.set_loss(*report.loss);
  proto.set_loss_workers(report.loss_workers);
  if (report.samples_per_second.has_value()) {
    proto.set_samples_per_second(*report.samples_per_second);
  }
  return proto;
}

TrainingReport FromProto(const v1::TrainingStatus& proto) {
  TrainingReport report;
  const bool has_loss =
      proto.has_loss() && proto.loss_workers() > 0 && proto.loss_workers() <= kWorkersPerNodeMax;
  if (has_loss) {
    report.loss = proto.loss();
    report.loss_workers = proto.loss_workers();
  }
  if (std::isfinite(proto.samples_per_second()) && proto.samples_per_second() >= 0 &&
      proto.has_samples_per_second()) {
    report.samples_per_second = proto.samples_per_second();
  }
  return report;
}

JobTraining TrainingOf(const v1::JobStatus& job) {
  JobTraining training;
  double losses = 0;
  double workers = 0;
  for (const v1::NodeStatus& node : job.nodes()) {
    const v1::TrainingStatus& told = node.training();
    if (told.has_loss() && told.loss_workers() > 0) {
      losses += told.loss() * told.loss_workers();
      workers += told.loss_workers();
    }
    if (told.has_samples_per_second()) {
      training.samples_per_second =
          training.samples_per_second.value_or(0) + told.samples_per_second();
    }
  }
  if (workers > 0) training.loss = losses / workers;
  return training;
}

namespace {

// A rate below this part of the median is slow.
constexpr double kSlowRate = 0.9;
// Ranks report their steps once a second: a rank is behind if it lacks more steps than a second
// holds, and more than this.
constexpr double kStepsBehind = 2;
// Two and a half of the pauses between two probes, which grow with the number of nodes (R4).
constexpr double kSilentPauses = 2.5;
// Bounds the difference, because steps come from peers.
constexpr double kBehindMax = 1e15;

// From how long a silence on a node of the job counts as silent. The status has no lease: a shorter
// one than the default's makes no node silent sooner.
uint64_t SilentMs(const v1::JobStatus& job) {
  const ProbePace pace(JobSpec().lease, static_cast<size_t>(job.nodes_size()));
  return static_cast<uint64_t>(absl::ToInt64Milliseconds(kSilentPauses * pace.interval));
}

double RateOf(const v1::NodeStatus& node) { return node.step_us() > 0 ? 1e6 / node.step_us() : 0; }

// The median over all workers of their nodes' rates; 0 = none is known.
double MedianRate(const v1::JobStatus& job) {
  std::vector<double> rates;
  for (const v1::NodeStatus& node : job.nodes()) {
    if (node.step_us() > 0)
      rates.insert(rates.end(), static_cast<size_t>(node.workers_size()), RateOf(node));
  }
  if (rates.empty()) return 0;
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  return *middle;
}

bool IsMarked(const v1::WorkerStatus& worker) { return worker.phase() != "unmarked"; }

// The worker's estimated current step: it has gone on since its last report, unless its node has
// been silent for too long.
double PositionOf(const v1::NodeStatus& node, const v1::WorkerStatus& worker, uint64_t silent_ms) {
  const double age = static_cast<double>(node.progress_age_ms()) / 1e3;
  const bool moves = worker.phase() == "train" && node.silent_ms() < silent_ms;
  return static_cast<double>(worker.step()) + (moves ? age * RateOf(node) : 0);
}

bool HoldsUp(const v1::NodeStatus& node) {
  return std::any_of(node.workers().begin(), node.workers().end(),
                     [](const v1::WorkerStatus& worker) { return worker.has_hold_up(); });
}

void NoteNode(double median, double furthest, uint64_t silent_ms, v1::NodeStatus* node) {
  const double rate = RateOf(*node);
  node->clear_lag();
  if (rate > 0 && rate < kSlowRate * median) node->set_lag("slow");
  if (HoldsUp(*node)) node->set_lag("holds up");
  if (node->silent_ms() >= silent_ms) node->set_lag("silent");
  for (v1::WorkerStatus& worker : *node->mutable_workers()) {
    const double behind =
        IsMarked(worker) ? std::min(furthest - PositionOf(*node, worker, silent_ms), kBehindMax)
                         : 0;
    worker.set_behind(static_cast<uint64_t>(std::llround(behind)));
    worker.set_lag(behind > kStepsBehind && behind > rate ? "behind" : "");
    if (worker.has_hold_up()) worker.set_lag("holds up");
  }
}

}  // namespace

void NoteLag(v1::JobStatus* job) {
  const double median = MedianRate(*job);
  const uint64_t silent_ms = SilentMs(*job);
  double furthest = 0;
  for (const v1::NodeStatus& node : job->nodes()) {
    for (const v1::WorkerStatus& worker : node.workers()) {
      if (IsMarked(worker)) furthest = std::max(furthest, PositionOf(node, worker, silent_ms));
    }
  }
  for (v1::NodeStatus& node : *job->mutable_nodes()) {
    NoteNode(median, furthest, silent_ms, &node);
  }
  // If a worker holds up the job, all other ranks wait, so none takes steps now.
  if (std::none_of(job->nodes().begin(), job->nodes().end(), HoldsUp)) return;
  for (v1::NodeStatus& node : *job->mutable_nodes()) node.clear_step_us();
}

}  // namespace ddprun::rendezvous
