#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_PREEMPTION_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_PREEMPTION_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "launcher/core/agent_settings.h"
#include "launcher/core/signal_policy.h"

namespace ddprun::launcher {

// Whether this node is taken away, why, and until when it waits to leave in an orderly way: by a
// signal or --preempt_after (R14), or a drain (R15).
//
//            kAskWorkers              they ask for a stop step
//   staying ────────────► asking ──────────────────────────────► going
//     │  ▲                  │ they don't, or another signal         ▲
//     │  └──────────────────┘                                       │
//     └───────── Begin, BeginFor, Drain ────────────────────────────┘
//
// There is no way back from going. Pure; one thread.
class Preemption {
 public:
  enum class Answer {
    kLeave,       // now: it is no preemption, or not the first signal
    kAgree,       // Begin() one, and agree with the other nodes
    kAskWorkers,  // whether they ask for a stop step; TakeAsked() when they have answered
  };
  enum class Due {
    kNothing,
    kTime,   // --preempt_after
    kBound,  // what was waited for hasn't come
  };
  // What a signal meets.
  struct Situation {
    bool can_agree = false;    // there is something to agree about, and somebody to agree with
    bool all_started = false;  // the workers
    bool committed = false;    // to a stop step, in this generation
  };

  Preemption(PreemptionSettings settings, SignalPolicy signals, Instant now);

  // An ending or preempting signal came.
  Answer OnSignal(int number, const Situation& situation);
  // The signal for which the workers were asked; 0 = none. It isn't waited for any more.
  int TakeAsked();

  // The node is taken away: by a signal, by something else, or out of this job. Requires: signal()
  // is 0. Without a `why` the signal says it.
  void Begin(int number);
  void BeginFor(std::string why);
  void Drain(std::string why);

  // What the node waits for before it leaves all the same.
  void AwaitAgreement(Instant now);
  void AwaitOthers(Instant now);
  void OnAgreed() { bound_ = Instant::Infinite(); }

  Due OnTimer(Instant now, Instant real_now);
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return bound_; }
  // The same in real time: nobody gives a node more time for having been held up.
  Instant TimeIsOver() const { return at_; }

  // Whether a signal says that this node goes away.
  bool Preempts(int number, bool committed) const;
  // Why a node leaves that leaves on this signal: the signal's name after `verb`, or what stands
  // for it.
  std::string WhyLeaving(int number, absl::string_view verb = "") const;
  // "its time is over (--preempt_after 1m40s)".
  std::string TimeText() const;

  // That the node is taken away with; 0 = it stays.
  int signal() const { return signal_; }
  bool is_going() const { return signal_ != 0; }
  bool is_drained() const { return drained_; }
  absl::Duration deadline() const { return settings_.deadline; }

  // What doesn't hold of the fields below; "" = all of it does.
  std::string BrokenInvariant() const;

 private:
  PreemptionSettings settings_;
  SignalPolicy signals_;
  int asked_ = 0;         // for which the workers are asked; 0 whenever signal_ isn't
  int signal_ = 0;        // never back to 0
  std::string why_;       // where it isn't the signal; signal_ is SIGTERM then
  bool drained_ = false;  // then signal_ isn't 0
  Instant at_;            // in real time, deadline before --preempt_after; infinite when over
  Instant bound_ = Instant::Infinite();  // of what is waited for; finite only with signal_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_PREEMPTION_H_
