#ifndef DDPRUN_RENDEZVOUS_WIRE_TRAINING_H_
#define DDPRUN_RENDEZVOUS_WIRE_TRAINING_H_

#include <optional>

#include "base/training_report.h"
#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::rendezvous {

// What workers report of their training passes beside the core's messages, at both ends: no rule
// looks at loss and rates, and a field of the core is proved, simulated and fuzzed. If a rule ever
// looks at them, they belong in the core. Pure; threads: any.
v1::TrainingStatus ToProto(const TrainingReport& report);
// Anybody may have sent it: what can't be is left out.
TrainingReport FromProto(const v1::TrainingStatus& proto);

// What the workers of a job report of their training; nullopt = none does.
struct JobTraining {
  std::optional<double> loss;                // the mean of those that report one
  std::optional<double> samples_per_second;  // of all together
};
JobTraining TrainingOf(const v1::JobStatus& job);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_TRAINING_H_
