#ifndef DDPRUN_RENDEZVOUS_WEB_TRAINING_H_
#define DDPRUN_RENDEZVOUS_WEB_TRAINING_H_

#include <cstdint>
#include <optional>

#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::rendezvous {

// Figures that are older are those of a driver, or a node, that doesn't answer any more.
inline constexpr uint64_t kFiguresFreshMs = 5000;

// What the workers of a job report of their training; nullopt = none does.
struct JobTraining {
  std::optional<double> loss;                // the mean of those that report one
  std::optional<double> samples_per_second;  // of all together
};
// Pure; threads: any.
JobTraining TrainingOf(const v1::JobStatus& job);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_TRAINING_H_
