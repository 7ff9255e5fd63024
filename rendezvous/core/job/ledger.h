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
class Ledger {
 public:
  // The first node has joined.
  void Begin(Instant now);
  // A generation has its ranks.
  void Form(Instant now);
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
               std::optional<Instant> closed, bool ended);

  TimeSpent Spent(Instant now) const;
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

  State state_ = State::kNew;
  std::optional<Instant> begun_;  // empty in kNew; a job may end before anybody joined
  Instant since_;                 // of the state; >= begun_
  Instant formed_;                // of the live generation; begun_ <= formed_ <= closed_
  Instant closed_ = Instant::Infinite();
  std::optional<Instant> fault_;
  bool first_ = true;              // no generation before the live one
  bool marks_ = false;             // a generation before it was marked
  std::map<uint32_t, Told> told_;  // of the live generation, by group rank
  TimeSpent booked_;               // from begun_ to the beginning of what is not over yet
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_LEDGER_H_
