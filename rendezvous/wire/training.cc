#include "rendezvous/wire/training.h"

#include <cmath>

#include "rendezvous/core/bounds.h"

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

}  // namespace ddprun::rendezvous
