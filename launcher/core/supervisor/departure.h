#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_DEPARTURE_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_DEPARTURE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "launcher/core/agent_settings.h"
#include "launcher/core/signal_policy.h"

namespace ddprun::launcher {

// The time limits of this node's workers once a stop step is agreed (R14): half of the time until
// the deadline for reaching the step, the rest for saving there. Workers that aren't at the step
// when kLook is due are stopped.
//
//   open ─Commit─► reaching ────────── half of the time, kLook ──► saving ─► kTimeIsOver
//                     │ Hasten: 250 ms, for workers just behind,     ▲
//                     └──────── then kLook ──────────────────────────┘
//
// For one generation; pure; one thread.
class AgreedStop {
 public:
  enum class Due {
    kNothing,
    kLook,        // check whether all workers are at the step
    kTimeIsOver,  // stop the workers, wherever they are
  };

  // A generation begins.
  void Reset() { *this = AgreedStop(); }
  // The step is agreed, and the nodes have `within` from now. Requires: not committed().
  void Commit(Instant now, absl::Duration within);
  // Something failed. A worker that isn't at the step soon won't get there, and one that saves
  // there may finish. Requires: committed().
  void Hasten(Instant now);
  // Only while the workers run.
  Due OnTimer(Instant now);
  // When OnTimer is wanted, while the workers run; infinite = not at all.
  Instant Deadline() const;

  bool committed() const { return committed_; }

  // Which invariant of the fields below is broken; "" = none.
  std::string BrokenInvariant() const;

 private:
  bool committed_ = false;
  Instant reach_end_ = Instant::Infinite();  // finite only if committed_, and until the look
  Instant save_end_ = Instant::Infinite();   // finite only if committed_
};

// Whether this node is taken away, why, and until when it waits to leave in an orderly way: by a
// signal or --preempt_after (R14), or a drain (R15).
//
//            kAskWorkers              workers want a stop step
//   staying ────────────► asking ──────────────────────────────► going
//     │  ▲                  │ they don't, or another signal         ▲
//     │  └──────────────────┘                                       │
//     └───────── Begin, BeginFor, Drain ────────────────────────────┘
//
// There is no way back from going. Pure; one thread.
class Departure {
 public:
  enum class Answer {
    kLeave,       // leave now: the signal doesn't preempt, or isn't the first one
    kAgree,       // Begin(), and agree on a stop step with the other nodes
    kAskWorkers,  // find out whether the workers want a stop step, then TakeAsked()
  };
  enum class Due {
    kNothing,
    kTime,   // --preempt_after
    kBound,  // AwaitAgreement() or AwaitOthers() has timed out
  };
  // The state of the agent when a signal comes.
  struct Situation {
    bool can_agree = false;    // workers run, and the service is reachable (CanAgree())
    bool all_started = false;  // all workers have started
    bool committed = false;    // a stop step is agreed in this generation
  };

  Departure(PreemptionSettings settings, SignalPolicy signals, Instant now);

  // An ending or preempting signal came.
  Answer OnSignal(int number, const Situation& situation);
  // The signal for which the workers were asked; 0 = none. Clears it.
  int TakeAsked();

  // The node is taken away: by a signal, by something else, or out of this job. Requires: signal()
  // is 0. Without a `why` the signal says it.
  void Begin(int number);
  void BeginFor(std::string why);
  void Drain(std::string why);

  // The node waits for this, and leaves when the time for it is over.
  void AwaitAgreement(Instant now);
  void AwaitOthers(Instant now);
  void OnAgreed() { bound_ = Instant::Infinite(); }

  Due OnTimer(Instant now, Instant real_now);
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return bound_; }
  // When --preempt_after is due, in real time: the node is taken away even if it was held up.
  Instant TimeIsOver() const { return at_; }

  // Whether a signal means that this node is taken away.
  bool Preempts(int number, bool committed) const;
  // Why the node leaves on this signal: the signal's name after `verb`, or the reason that the
  // signal stands for.
  std::string WhyLeaving(int number, absl::string_view verb = "") const;
  // "its time is over (--preempt_after 1m40s)".
  std::string TimeText() const;

  // The signal by which the node is taken away; 0 = it stays.
  int signal() const { return signal_; }
  bool is_going() const { return signal_ != 0; }
  bool is_drained() const { return drained_; }
  absl::Duration deadline() const { return settings_.deadline; }

  // Which invariant of the fields below is broken; "" = none.
  std::string BrokenInvariant() const;

 private:
  PreemptionSettings settings_;
  SignalPolicy signals_;
  int asked_ = 0;         // the signal for which the workers are asked; 0 if signal_ isn't 0
  int signal_ = 0;        // never goes back to 0
  std::string why_;       // the reason if it isn't a signal; signal_ is SIGTERM then
  bool drained_ = false;  // implies that signal_ isn't 0
  Instant at_;            // in real time, deadline before --preempt_after; infinite when over
  Instant bound_ = Instant::Infinite();  // end of the current wait; finite only with signal_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_DEPARTURE_H_
