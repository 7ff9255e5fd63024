#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_SERVICE_WATCH_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_SERVICE_WATCH_H_

#include <algorithm>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "launcher/core/agent_settings.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// Whether the service is there, and for how long this agent does without it (R5).
//
//   joining ─OnWelcome─► heard ◄──────────── OnHeard ────────── silent
//                          │ ──────── nothing for a lease ──────► │
//                          │ OnClosed                             │ OnClosed
//                          └──────────────► lost ◄────────────────┘
//
// OnWelcome leads from all of them to heard. Joining is given up after the reach timeout, silent
// and lost after the loss timeout: a long one while this node's workers can go on, as nothing is
// lost by waiting, and a short one that begins when they can't. While the resolver says that the
// host's name doesn't exist, joining may have a shorter timeout. The user is told of a service that
// doesn't answer after a second, of one that fell silent at once, and of workers that can't go on
// without it. Pure; one thread.
class ServiceWatch {
 public:
  struct Decision {
    // It has just fallen silent: its loss begins, and this is why.
    std::optional<std::string> lost;
    // Nothing is left to wait for, and this is why.
    std::optional<std::string> give_up;
    // What the user is to know while it is waited for. Never with give_up.
    std::optional<std::string> tell;
  };

  // That it isn't there, for who asks.
  struct Absence {
    absl::Duration lasted;  // so far
    absl::Duration left;    // until it is given up; may be infinite
    std::string why;        // "" = nothing is known
    bool workers_go_on = true;
  };

  // Params: `endpoint` is the service's name for people. Of the job, lease and join timeout count.
  ServiceWatch(const ServiceTimeouts& timeouts, const rendezvous::JobSpec& job,
               std::string endpoint, Instant now);

  // Anything came from it. Who was silent is back by that: a loss that follows, before any timer,
  // is another one, and has all of its time.
  void OnHeard(Instant now);
  void OnWelcome();
  // Params: lease: of a job so large that it is probed at longer intervals; zero = the job's own.
  void OnProbe(absl::Duration lease) { lease_ = std::max(lease, job_lease_); }
  // The stream is closed, or could not be opened; it is tried again.
  // Params: name_unknown: because the resolver says that the host's name doesn't exist.
  // Returns: whether the service's loss begins with this.
  bool OnClosed(Instant now, std::string error, bool name_unknown = false);
  // Whether this node's workers can go on by themselves: they run, or have ended well, or the
  // job runs without this node.
  void OnWorkers(Instant now, bool go_on);
  Decision OnTimer(Instant now);
  // When OnTimer is wanted; never infinite, but for a job without bounds.
  Instant Deadline() const;

  // "the rendezvous service at host0:29400 answers now, after 12s": once, when a service is heard
  // whose absence the user was told of.
  std::optional<std::string> TakeReturn(Instant now);

  // Empty while it is heard. Params: now: not before the last step.
  std::optional<Absence> Look(Instant now) const;
  // What is known of the service's absence; "" = nothing.
  const std::string& last_error() const { return last_error_; }
  bool is_joining() const { return state_ == State::kJoining; }
  // The last try to join found that the host's name doesn't exist.
  bool is_name_unknown() const { return !name_unknown_since_.is_infinite(); }

  // What doesn't hold of the fields below; "" = all of it does.
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
  bool reach_is_own_;     // it is shorter than the join timeout
  absl::Duration unknown_name_;
  absl::Duration loss_;
  absl::Duration loss_without_workers_;
  absl::Duration job_lease_;
  absl::Duration lease_;  // in force; at least the job's own
  std::string endpoint_;
  State state_ = State::kJoining;
  Instant since_;                            // joining, silent or lost; infinite only while heard
  Instant last_contact_;                     // never after a step's time
  Instant halted_at_ = Instant::Infinite();  // infinite: the workers can go on
  // Since when each try to join found that; finite only while joining.
  Instant name_unknown_since_ = Instant::Infinite();
  Instant tell_at_;  // when to tell the user; infinite while heard, or when it was told
  // Since when the service had been missing when the user was told; infinite: nothing is told, or
  // its return is, too.
  Instant told_since_ = Instant::Infinite();
  std::string last_error_;  // "" after each Welcome
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_SERVICE_WATCH_H_
