#ifndef DDPRUN_LAUNCHER_CORE_AGENT_SETTINGS_H_
#define DDPRUN_LAUNCHER_CORE_AGENT_SETTINGS_H_

#include <string>

#include "absl/time/time.h"

// The user's settings for an agent, one struct for each part of its Supervisor. A LaunchPlan has
// the same structs, so each default is defined only here.
namespace ddprun::launcher {

// The name of the service in messages.
inline constexpr char kEtcdEndpoint[] = "etcd at ";
struct EndpointName {
  std::string text;  // "host0:29400", or kEtcdEndpoint and its members
  // The node that has the endpoint's address hosts the service, unless an option names another.
  bool hosts_by_address = false;
  std::string alone_hint = {};  // EndpointPlan::alone_hint
  std::string name_hint = {};   // EndpointPlan::name_hint
};

// How long an agent goes on without its service.
struct ServiceTimeouts {
  // --rdzv_conf read_timeout: how long the service may be out of reach at the beginning; never
  // longer than job.join_timeout.
  absl::Duration reach = absl::InfiniteDuration();
  // The same while the endpoint's host name doesn't resolve.
  absl::Duration unknown_name = absl::InfiniteDuration();
  // --service_loss_timeout: how long an agent that has lost the service keeps workers that can go
  // on without it.
  absl::Duration loss = absl::Seconds(90);
  // The same when workers can't go on: one has failed, or they were stopped. An explicit
  // --service_loss_timeout sets both.
  absl::Duration loss_without_workers = absl::Seconds(10);
};

// How long a node whose workers have all ended well waits for the others.
struct ExitBarrierSettings {
  // --exit_barrier_timeout. A node that the others need (it has the service, or rank 0's store)
  // waits longer.
  absl::Duration timeout = absl::InfiniteDuration();
};

// When this node is taken away.
struct PreemptionSettings {
  // --preempt_deadline: how long after a preempting signal the node is taken away.
  absl::Duration deadline = absl::Seconds(30);
  // --preempt_after: how long after this agent's start; infinite = the node isn't taken away.
  absl::Duration after = absl::InfiniteDuration();
};

// How an agent ends.
struct EndingSettings {
  // --exit_code worker: exit with the first cause's own status when the job failed (128 + signal),
  // not with 1.
  bool with_first_cause = false;
  // How long after this agent's start the service may go on after the verdict, for agents that a
  // scheduler has started and that are late (R8); zero = not at all.
  absl::Duration late_agents = absl::ZeroDuration();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_AGENT_SETTINGS_H_
