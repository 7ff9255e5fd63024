#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_SERVICE_WATCH_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_SERVICE_WATCH_H_

#include <algorithm>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "launcher/core/agent_settings.h"
#include "rendezvous/core/job_spec.h"

namespace ddprun::launcher {

// Whether the service is reachable, and how long this agent goes on without it (R5).
//
//   joining ─OnWelcome─► heard ◄──────────── OnHeard ────────── silent
//                          │ ──────── nothing for a lease ──────► │
//                          │ OnClosed                             │ OnClosed
//                          └──────────────► lost ◄────────────────┘
//
// OnWelcome leads from every state to heard. Joining is given up after the reach timeout, silent
// and lost after the loss timeout. That is long while this node's workers can go on, because
// waiting costs nothing then, and short from when they can't. While the host's name doesn't
// resolve, joining may have a shorter timeout. The user is notified after a second if a service
// doesn't answer, at once if it fell silent, and when workers can't go on without it. Pure; one
// thread.
class ServiceWatch {
 public:
  struct Decision {
    // Why the service counts as lost from now on.
    std::optional<std::string> lost;
    // Why the agent gives up waiting.
    std::optional<std::string> give_up;
    // A text for the user while the agent waits. Never with give_up.
    std::optional<std::string> tell;
  };

  // The service's absence, for status queries.
  struct Absence {
    absl::Duration lasted;  // so far
    absl::Duration left;    // until the agent gives up; may be infinite
    std::string why;        // "" = not known
    bool workers_go_on = true;
  };

  // Params: endpoint: the service's name for people. Uses the job's lease and join timeout.
  ServiceWatch(const ServiceTimeouts& timeouts, const rendezvous::JobSpec& job,
               std::string endpoint, Instant now);

  // Anything came from the service, which ends a silence. A loss that follows, even before any
  // timer, is a new one and has its whole timeout.
  void OnHeard(Instant now);
  void OnWelcome();
  // Params: lease: a longer one, if the job is so large that probes are rarer; zero = the job's
  // own.
  void OnProbe(absl::Duration lease) { lease_ = std::max(lease, job_lease_); }
  // The stream is closed, or could not be opened; the agent tries again.
  // Params: name_unknown: the host's name doesn't exist.
  // Returns: whether the service's loss begins with this.
  bool OnClosed(Instant now, std::string error, bool name_unknown = false);
  // Whether this node's workers can go on by themselves: they run, or have ended well, or the
  // job runs without this node.
  void OnWorkers(Instant now, bool go_on);
  Decision OnTimer(Instant now);
  // When OnTimer is wanted; infinite only for a job without time limits.
  Instant Deadline() const;

  // "the rendezvous service at host0:29400 answers now, after 12s": once, when the service is heard
  // again after the user was notified of its absence.
  std::optional<std::string> TakeReturn(Instant now);

  // nullopt while the service is heard. Params: now: not before the last step.
  std::optional<Absence> Look(Instant now) const;
  bool is_joining() const { return state_ == State::kJoining; }
  // The last try to join found that the host's name doesn't exist.
  bool is_name_unknown() const { return !name_unknown_since_.is_infinite(); }

  // Which invariant of the fields below is broken; "" = none.
  std::string BrokenInvariant() const;

 private:
  enum class State { kJoining, kHeard, kSilent, kLost };

  // What ends the wait.
  enum class Limit { kReach, kUnknownName, kLoss, kLossWithoutWorkers };

  void BeHeard();
  bool is_missing() const { return state_ == State::kSilent || state_ == State::kLost; }
  Limit LimitNow() const;
  Instant BoundOf(Limit limit) const;
  Instant Bound() const { return BoundOf(LimitNow()); }
  std::string WhyGivenUp() const;
  std::string WaitText(absl::Duration left) const;

  absl::Duration reach_;  // min(timeouts.reach, join timeout)
  bool reach_is_own_;     // reach_ is shorter than the join timeout
  absl::Duration unknown_name_;
  absl::Duration loss_;
  absl::Duration loss_without_workers_;
  absl::Duration job_lease_;
  absl::Duration lease_;  // in force; at least the job's own
  std::string endpoint_;
  State state_ = State::kJoining;
  Instant since_;         // when joining, silent or lost began; infinite only while heard
  Instant last_contact_;  // never after a step's time
  Instant halted_at_ = Instant::Infinite();  // infinite: the workers can go on
  // Since when every try to join has found that the name doesn't exist; finite only while joining.
  Instant name_unknown_since_ = Instant::Infinite();
  Instant tell_at_;  // when to notify the user; infinite while heard, and once notified
  // The begin of the absence that the user was notified of; infinite = the user wasn't, or was
  // notified of the return, too.
  Instant told_since_ = Instant::Infinite();
  std::string last_error_;  // what is known of the absence; "" after each Welcome
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_SERVICE_WATCH_H_
