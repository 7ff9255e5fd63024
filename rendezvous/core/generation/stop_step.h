#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_STOP_STEP_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_STOP_STEP_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/worker_progress.h"

namespace ddprun::rendezvous {

// Agrees on one step at which all ranks of a generation stop (R14), in two phases:
//
//   asking ─(all have said how far they are)─► preparing(S) ─(all are below S)─► committed(S)
//                                               ▲        │
//                                               └────────┘ a rank has passed S: a larger one
//
// Workers that reach S meanwhile are held there, so no rank passes a step at which another one
// stops. S begins close above the highest step, and its distance doubles with each round. Members
// are named by group rank. Pure.
class StopAgreement {
 public:
  enum class Action {
    kNone,
    kAsk,     // send round() and step() to all members
    kCommit,  // the step holds for all
    kGiveUp,  // why() says why: stop the workers without an agreement
  };

  // Params: first_round: the numbers of this agreement's rounds are above it, so that answers to
  // another agreement don't count for this one.
  explicit StopAgreement(uint32_t first_round = 0) : first_round_(first_round) {}

  // Requires: not active(). Params: `until`: when the machine goes away.
  void Begin(Instant now, Instant until, std::set<uint32_t> members);
  // Another node is preempted, too.
  void Hasten(Instant until);
  // A member answers. Answers to older rounds are ignored.
  Action Add(Instant now, uint32_t group_rank, uint32_t round, const StopLook& look);
  // A member whose workers have all ended well is no longer a part of the agreement.
  Action Drop(Instant now, uint32_t group_rank);
  // Returns kGiveUp if the agreement has taken too long.
  Action OnTimer(Instant now);
  // The generation is over, or stops without an agreement.
  void Reset();

  // Asking or preparing.
  bool active() const { return state_ == State::kAsking || state_ == State::kPreparing; }
  bool committed() const { return state_ == State::kCommitted; }
  bool awaits(uint32_t group_rank) const { return active() && awaited_.contains(group_rank); }
  uint32_t round() const { return round_; }
  uint64_t step() const { return step_; }  // 0 while asking
  Instant until() const { return until_; }
  // When to call OnTimer; infinite = never.
  Instant deadline() const;
  const std::string& why() const { return why_; }
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  enum class State { kNone, kAsking, kPreparing, kCommitted };

  Action Advance(Instant now);
  Action GiveUp(std::string why);

  uint32_t first_round_;
  State state_ = State::kNone;  // in kNone only why_ is set
  Instant began_;
  Instant until_;
  std::set<uint32_t> members_;  // empty when all have ended
  std::set<uint32_t> awaited_;  // members that haven't answered this round; empty unless active()
  uint32_t round_ = 0;          // above first_round_; one more each time
  uint64_t step_ = 0;           // above highest_ when it is proposed; 0 while asking
  uint64_t highest_ = 0;        // highest step of any member; never goes down
  uint64_t margin_ = 0;         // step_ - highest_ when it was proposed; 0 while asking
  bool below_ = true;           // all answers of this round were `below`
  absl::Duration step_time_;    // of the slowest worker
  std::string why_;
};

// How long an agreement takes if all goes well: two observations 10 ms apart, and a few round
// trips.
inline constexpr absl::Duration kAgreeingTime = absl::Milliseconds(50);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_STOP_STEP_H_
