#ifndef DDPRUN_LAUNCHER_CORE_AGENT_SETTINGS_H_
#define DDPRUN_LAUNCHER_CORE_AGENT_SETTINGS_H_

#include <string>

#include "absl/time/time.h"

// What the user may set of an agent's own doing, one struct for each part of its Supervisor. A
// LaunchPlan holds the same structs, so each default stands here and nowhere else.
namespace ddprun::launcher {

// How messages name the service.
inline constexpr char kEtcdEndpoint[] = "etcd at ";
struct EndpointName {
  std::string text;  // "host0:29400", or kEtcdEndpoint and its members
  // The node that has the endpoint's address hosts the service, unless one is told to.
  bool hosts_by_address = false;
  std::string alone_hint = {};  // EndpointPlan::alone_hint
  std::string name_hint = {};   // EndpointPlan::name_hint
};

// How long an agent goes on without its service.
struct ServiceTimeouts {
  // --rdzv_conf read_timeout: how long it may be out of reach at the beginning; never longer than
  // job.join_timeout.
  absl::Duration reach = absl::InfiniteDuration();
  // The same while the resolver says that the endpoint's host has no such name.
  absl::Duration unknown_name = absl::InfiniteDuration();
  // --service_loss_timeout: how long an agent that lost it keeps workers that can go on without it.
  absl::Duration loss = absl::Seconds(90);
  // The same once they can't: one has failed, or they were stopped. What --service_loss_timeout
  // sets is both.
  absl::Duration loss_without_workers = absl::Seconds(10);
};

// How long a node whose workers have all ended well waits for the others.
struct ExitBarrierSettings {
  // --exit_barrier_timeout. It waits on all the same where the others need it: it has the service,
  // or rank 0's store.
  absl::Duration timeout = absl::InfiniteDuration();
};

// When this node is taken away.
struct PreemptionSettings {
  // --preempt_deadline: how long after a preempting signal it is still there.
  absl::Duration deadline = absl::Seconds(30);
  // --preempt_after: the same from the start of this agent; infinite = it isn't taken away.
  absl::Duration after = absl::InfiniteDuration();
};

// What an agent's exit status says.
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
