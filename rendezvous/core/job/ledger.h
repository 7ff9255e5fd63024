#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_LEDGER_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/instant.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/time_spent.h"

namespace ddprun::rendezvous {

// Accounts each moment of a job to one cause (docs/GOODPUT.md), for people who watch; it decides
// nothing. The times always sum up to the time since Begin.
//
//   Begin ─rendezvous─► Form ─as a node reports─► Close ─restart─► Settle ─rendezvous─► Form …
//
// Within a generation one node speaks for all: of the nodes that reported how they spent it to its
// end (if none did, of all that reported), the one with the lowest rank. Pure; one thread. Bounds:
// one record a node.
//
// Counters can't follow these times, because a generation's causes are known for good only when the
// generation is over. The time without a report counts as `other` until the report is there; the
// last second of training becomes detection when a fault in it is found; a node that speaks in
// place of a lost one knows some milliseconds less. So of a live generation, Counted has only what
// *each* node has reported of the time before its last mark. No later report and no lost node makes
// that less:
//
//   node 0 reports  start_up 4.0  training 9.8  and 0.2 of training since its last mark
//   node 1 reports  start_up 4.1  training 9.7  and 0.1 of training since its last mark
//   counted:        start_up 4.0  training 9.7
//
// A service that resumes the job gets the same reports from the same agents. It counts again when
// all of them have reported, and has at least what the former service had.
//
// Why one node and not the mean of all: a checkpoint of rank 0 for which 63 others wait would count
// as a sixty-fourth of a checkpoint. Nodes report durations, not times, because clocks of hosts
// can't be compared. Training is measured by marks and isn't the remainder, because with a
// remainder the times would sum up whatever is wrong.
class Ledger {
 public:
  // The first node has joined.
  void Begin(Instant now);
  // A generation of `nodes` nodes has its ranks.
  void Form(Instant now, size_t nodes);
  // A node reports how it spends the live generation. Params: done: its workers have all ended
  // well.
  void Report(Instant now, uint32_t group_rank, const NodeTime& time, bool done);
  // The end of the generation was decided. Params: fault: the earliest time of a fault that was
  // unknown until now; nullopt = nothing went wrong. Ignored if no generation is live.
  void Close(Instant now, std::optional<Instant> fault);
  // All nodes of the generation have answered.
  void Settle(Instant now);
  // The job is over, in whatever state.
  void End(Instant now);

  // For the job's record, and back from it. Params: formed, closed: of the live generation; nullopt
  // = none is, or nothing ends it; ended: the job has.
  LedgerRecord ToRecord(Instant now) const;
  void Recover(Instant now, const LedgerRecord& record, std::optional<Instant> formed,
               std::optional<Instant> closed, bool ended, size_t nodes);
  // A recovered generation runs, and some of its nodes haven't reported so far.
  bool recovers() const { return recovers_ && state_ == State::kRunning; }
  // Moves the live generation's begin, and the job's with it, back to `formed`, if that is earlier:
  // a record of another machine doesn't say how much time has passed since. Requires: recovers().
  void FormedBefore(Instant formed);
  // Moves the job's begin back to `begun`, if that is earlier, for a job without a live generation,
  // or with an ending one: the missing time is accounted to the last state in the record. Ignored
  // if a generation has begun since Recover. Returns how far everything moves back; zero = not at
  // all.
  absl::Duration BegunBefore(Instant begun);

  TimeSpent Spent(Instant now) const;
  // The part of Spent that is certain. No cause is ever less than before, also after a recovery.
  // nullopt: recovers(); or the recovered generation ended before all nodes reported; or none was
  // live, and BegunBefore hasn't been called since.
  std::optional<TimeSpent> Counted(Instant now) const;
  // The time since Begin; zero before.
  absl::Duration Age(Instant now) const;
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant(Instant now) const;

 private:
  enum class State { kNew, kForming, kRunning, kClosing, kEnded };
  struct Told {
    Instant at;
    NodeTime time;
    bool done = false;
  };

  const Told* Speaker() const;
  TimeSpent SplitGeneration(Instant end) const;
  void BookGeneration();
  void Ascertain(Instant now);

  State state_ = State::kNew;
  std::optional<Instant> begun_;  // empty in kNew; a job may end before a node joined
  Instant since_;                 // of the state; >= begun_
  Instant formed_;                // of the live generation; begun_ <= formed_ <= closed_
  Instant closed_ = Instant::Infinite();
  std::optional<Instant> fault_;
  bool first_ = true;              // the live generation is the first
  bool marks_ = false;             // an earlier generation had marks
  std::map<uint32_t, Told> told_;  // of the live generation, by group rank
  size_t nodes_ = 0;               // of the live generation
  bool recovered_ = false;  // no generation lived when the record was made, nor has one begun since
  bool recovers_ = false;   // recovered, and agents still have to report what the record lacks
  TimeSpent certain_;       // of the live generation; its total is at most that until closed_
  TimeSpent booked_;        // from begun_ to the begin of the live generation or wait
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_LEDGER_H_
