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

// Books each moment of a job under one cause (docs/GOODPUT.md), for people who watch; nothing is
// decided by it. What it has booked always sums up to the time since Begin.
//
//   Begin ─rendezvous─► Form ─as a node tells─► Close ─restart─► Settle ─rendezvous─► Form …
//
// Within a generation one node speaks for all: that of the lowest rank among those that told how
// they spent it to its end, or told at all. Pure; one thread. Bounds: one record a node.
//
// Counters can't follow the books: what a generation's time went into is known for good only when
// the generation is over. The wait for a message counts as `other` until the message is there; the
// last second of training becomes detection when a fault in it is found; a node that speaks in
// place of a lost one knows of some milliseconds less. So Counted has of a live generation only
// what *each* node has told of the time before its last mark. No later report and no lost node
// makes that less:
//
//   node 0 tells  start_up 4.0  training 9.8  and 0.2 of training since its last mark
//   node 1 tells  start_up 4.1  training 9.7  and 0.1 of training since its last mark
//   counted:      start_up 4.0  training 9.7
//
// A service that goes on with the job hears the same from the same agents. It counts again when all
// of them have told, and has at least what the former service had.
//
// One node, not the mean of all: a checkpoint of rank 0 for which 63 others wait would be a
// sixty-fourth of a checkpoint. Durations, not times, because clocks of hosts can't be compared.
// Training is booked by marks, not as what is left over: then the books would balance whatever is
// wrong.
class Ledger {
 public:
  // The first node has joined.
  void Begin(Instant now);
  // A generation of so many nodes has its ranks.
  void Form(Instant now, size_t nodes);
  // A node has told how it spends the live generation. `done`: its workers have all ended well.
  void Report(Instant now, uint32_t group_rank, const NodeTime& time, bool done);
  // It was decided that the generation ends. `fault`: not before then happened what ended it, of
  // which nobody knew; nullopt = nothing went wrong. Ignored when no generation is live.
  void Close(Instant now, std::optional<Instant> fault);
  // All of its nodes have answered.
  void Settle(Instant now);
  // The job is over, in whatever state.
  void End(Instant now);

  // For the job's record, and back from it. Params: formed, closed: of the live generation; nullopt
  // = none is, or nothing ends it; ended: the job has.
  LedgerRecord ToRecord(Instant now) const;
  void Recover(Instant now, const LedgerRecord& record, std::optional<Instant> formed,
               std::optional<Instant> closed, bool ended, size_t nodes);
  // A recovered generation runs, of which not all nodes have told yet.
  bool recovers() const { return recovers_ && state_ == State::kRunning; }
  // Moves the live generation's begin, and the job's with it, back to `formed`, if that is earlier:
  // a record of another machine doesn't say how much time has passed since. Requires: recovers().
  void FormedBefore(Instant formed);
  // The same of a job that has no live generation, or an ending one: on what the record says last,
  // the time was spent of which it doesn't know. Ignored when the record is of no use any more: a
  // generation began since Recover. Returns: how far it all moves back; zero = not at all.
  absl::Duration BegunBefore(Instant begun);

  TimeSpent Spent(Instant now) const;
  // What of Spent is certain. No cause is ever less than before, also after a recovery. nullopt =
  // recovers(), or the recovered generation has ended before all nodes told; or none was live, and
  // BegunBefore hasn't been called since.
  std::optional<TimeSpent> Counted(Instant now) const;
  // Since Begin; zero before.
  absl::Duration Age(Instant now) const;
  // What is wrong with it; "" = nothing.
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
  std::optional<Instant> begun_;  // empty in kNew; a job may end before anybody joined
  Instant since_;                 // of the state; >= begun_
  Instant formed_;                // of the live generation; begun_ <= formed_ <= closed_
  Instant closed_ = Instant::Infinite();
  std::optional<Instant> fault_;
  bool first_ = true;              // no generation before the live one
  bool marks_ = false;             // a generation before it was marked
  std::map<uint32_t, Told> told_;  // of the live generation, by group rank
  size_t nodes_ = 0;               // of the live generation
  bool recovered_ = false;  // no generation lived when the record was made, nor has one begun since
  bool recovers_ = false;   // recovered, and agents have still to tell what the record doesn't know
  TimeSpent certain_;       // of the live generation; its total is at most that until closed_
  TimeSpent booked_;        // from begun_ to the beginning of what is not over yet
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_LEDGER_H_
