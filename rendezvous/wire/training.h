#ifndef DDPRUN_RENDEZVOUS_WIRE_TRAINING_H_
#define DDPRUN_RENDEZVOUS_WIRE_TRAINING_H_

#include <optional>

#include "base/progress_page.h"
#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::rendezvous {

// What workers report of their training passes beside the core's messages, at both ends: no rule
// looks at loss and rates, and a field of the core is proved, simulated and fuzzed. If a rule ever
// looks at them, they belong in the core. Pure; threads: any.
v1::TrainingStatus ToProto(const TrainingReport& report);
// Drops impossible values, because any peer may have sent the message.
TrainingReport FromProto(const v1::TrainingStatus& proto);

// The training figures of a job's workers; nullopt = no worker reports any.
struct JobTraining {
  std::optional<double> loss;                // the mean of the reported ones
  std::optional<double> samples_per_second;  // the sum over all workers
};
JobTraining TrainingOf(const v1::JobStatus& job);

// Fills in which workers hold up the job, and which nodes are behind, slow or silent:
// NodeStatus.lag, WorkerStatus.behind and WorkerStatus.lag. `ddprun top`, the page and programs all
// use this rule. Requires: all nodes of the job are there, because they are compared. Pure;
// threads: any.
void NoteLag(v1::JobStatus* job);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_TRAINING_H_
