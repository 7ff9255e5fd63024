#include "rendezvous/web/training.h"

namespace ddprun::rendezvous {

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
