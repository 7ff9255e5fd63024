#ifndef DDPRUN_RENDEZVOUS_WIRE_LAG_H_
#define DDPRUN_RENDEZVOUS_WIRE_LAG_H_

#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::rendezvous {

// Fills in which workers hold up the job, and which nodes are behind, slow or silent:
// NodeStatus.lag, WorkerStatus.behind and WorkerStatus.lag. `ddprun top`, the page and programs all
// use this rule. Requires: all nodes of the job are there, because they are compared. Pure;
// threads: any.
void NoteLag(v1::JobStatus* job);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_LAG_H_
