#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_STATE_MACHINE_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_STATE_MACHINE_H_

#include <deque>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/instant.h"
#include "rendezvous/core/events.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/views.h"

namespace ddprun::rendezvous {

// Decides membership, ranks, restarts and the verdict of one job: rules R1-R9, R11 and R12 of
// docs/PROTOCOL.md. Pure: no clock, I/O, thread, log or randomness; the same inputs give the same
// effects, byte for byte.
//
//   forming ──(enough nodes)──► running ──(failure, loss, leave, growth)──► closing
//      ▲                           │                                          │
//      │                           └──(all ranks succeeded)──► ended ◄────────┤ (budget spent,
//      stop) └──────────────(every member answered: next round)◄───────────────────┘
//
// Threads: one at a time; the shell's loop.
class StateMachine {
 public:
  // Params: term: names this life of the service; token: the job's secret, "" = none; keeps: there
  // is a journal, without which there are no Persist effects. The first Join brings the job's spec.
  StateMachine(Term term, std::string token, bool keeps = false);
  // Resumes the job of a service that has ended. Params: elapsed: time since the record was taken,
  // if that is known. Requires: the record is whole (rendezvous/journal checks it), and its
  // `life` counts this service.
  StateMachine(Instant now, JobRecord record, absl::Duration elapsed, std::string token);
  ~StateMachine();
  StateMachine(const StateMachine&) = delete;
  StateMachine& operator=(const StateMachine&) = delete;

  // Handles one event at `now` and returns the effects, to be carried out in this order. `now`
  // never goes back. Events of unknown or superseded streams are ignored with a Note; no message
  // from the wire aborts (R9).
  std::vector<Effect> Step(Instant now, const Event& event);

  // When to call Step(TimerDue) next; infinite = never.
  Instant NextDeadline() const;

  // The record that all Persists until now ask for; O(n). The next PersistDone confirms to the
  // agents what the record settles.
  JobRecord TakeRecord(Instant now);

  JobView View(Instant now) const;
  // The last generations, oldest first; the live one is among them.
  const std::deque<GenerationView>& generations() const;

  // Aborts with the state printed when an invariant is broken: ranks 0..world-1 exactly, contiguous
  // by node; one live generation; each member in one state; deadlines only where something waits.
  void CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_STATE_MACHINE_H_
