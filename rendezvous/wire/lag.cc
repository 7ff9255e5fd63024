#include "rendezvous/wire/lag.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddprun::rendezvous {
namespace {

// A rate below this part of the median is slow.
constexpr double kSlowRate = 0.9;
// Ranks report their steps once a second: a rank is behind if it lacks more steps than a second
// holds, and more than this.
constexpr double kStepsBehind = 2;
constexpr uint64_t kSilentMs = 2500;
// Bounds the difference, because steps come from peers.
constexpr double kBehindMax = 1e15;

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
double PositionOf(const v1::NodeStatus& node, const v1::WorkerStatus& worker) {
  const double age = static_cast<double>(node.progress_age_ms()) / 1e3;
  const bool moves = worker.phase() == "train" && node.silent_ms() < kSilentMs;
  return static_cast<double>(worker.step()) + (moves ? age * RateOf(node) : 0);
}

bool HoldsUp(const v1::NodeStatus& node) {
  return std::any_of(node.workers().begin(), node.workers().end(),
                     [](const v1::WorkerStatus& worker) { return worker.has_hold_up(); });
}

void NoteNode(double median, double furthest, v1::NodeStatus* node) {
  const double rate = RateOf(*node);
  node->clear_lag();
  if (rate > 0 && rate < kSlowRate * median) node->set_lag("slow");
  if (HoldsUp(*node)) node->set_lag("holds up");
  if (node->silent_ms() >= kSilentMs) node->set_lag("silent");
  for (v1::WorkerStatus& worker : *node->mutable_workers()) {
    const double behind =
        IsMarked(worker) ? std::min(furthest - PositionOf(*node, worker), kBehindMax) : 0;
    worker.set_behind(static_cast<uint64_t>(std::llround(behind)));
    worker.set_lag(behind > kStepsBehind && behind > rate ? "behind" : "");
    if (worker.has_hold_up()) worker.set_lag("holds up");
  }
}

}  // namespace

void NoteLag(v1::JobStatus* job) {
  const double median = MedianRate(*job);
  double furthest = 0;
  for (const v1::NodeStatus& node : job->nodes()) {
    for (const v1::WorkerStatus& worker : node.workers()) {
      if (IsMarked(worker)) furthest = std::max(furthest, PositionOf(node, worker));
    }
  }
  for (v1::NodeStatus& node : *job->mutable_nodes()) NoteNode(median, furthest, &node);
  // If a worker holds up the job, all other ranks wait, so none takes steps now.
  if (std::none_of(job->nodes().begin(), job->nodes().end(), HoldsUp)) return;
  for (v1::NodeStatus& node : *job->mutable_nodes()) node.clear_step_us();
}

}  // namespace ddprun::rendezvous
