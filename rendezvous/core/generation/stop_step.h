#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_STOP_STEP_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_STOP_STEP_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// Agrees on one step at which all ranks of a generation stop (R14), in two phases:
//
//   asking ─(all have said how far they are)─► preparing(S) ─(all are below S)─► committed(S)
//                                               ▲        │
//                                               └────────┘ somebody has passed S: a larger one
//
// Workers that reach S meanwhile are held there, so a rank never passes a step that another one
// stops at. Nothing is known of how long a message takes, so S begins close above the highest step,
// and its distance doubles with each round: jobs with slow steps need not wait for long, and those
// with fast ones agree within a few round trips. Members are named by group rank. Pure.
class StopAgreement {
 public:
  enum class Action {
    kNone,
    kAsk,     // send round() and step() to all members
    kCommit,  // the step holds for all
    kGiveUp,  // why() says why: stop the workers without an agreement
  };

  // Params: first_round: numbers of rounds are above it, so that answers to another agreement are
  // not taken for answers to this one.
  explicit StopAgreement(uint32_t first_round = 0) : first_round_(first_round) {}

  // Requires: not active(). Params: `until`: when the machine goes away.
  void Begin(Instant now, Instant until, std::set<uint32_t> members);
  // Another node is preempted too.
  void Hasten(Instant until);
  // A member's answer; those to older rounds say nothing.
  Action Add(Instant now, uint32_t group_rank, uint32_t round, const StopLook& look);
  // A member whose workers have all ended well isn't asked any more.
  Action Drop(Instant now, uint32_t group_rank);
  // kGiveUp when it has taken too long.
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
  // When OnTimer is wanted; infinite = not at all.
  Instant deadline() const;
  const std::string& why() const { return why_; }
  // What is wrong with it; "" = nothing.
  std::string BrokenInvariant() const;

 private:
  enum class State { kNone, kAsking, kPreparing, kCommitted };

  Action Advance(Instant now);
  Action GiveUp(std::string why);

  uint32_t first_round_;
  State state_ = State::kNone;  // of the others, kNone has why_ only
  Instant began_;
  Instant until_;
  std::set<uint32_t> members_;  // empty when all have ended
  std::set<uint32_t> awaited_;  // of this round; members, and none but while active()
  uint32_t round_ = 0;          // above first_round_; one more each time
  uint64_t step_ = 0;           // above highest_ when it is proposed; 0 while asking
  uint64_t highest_ = 0;        // that any member was at; never goes down
  uint64_t margin_ = 0;         // step_ beyond highest_ then; 0 while asking
  bool below_ = true;           // in this round
  absl::Duration step_time_;    // of the slowest worker
  std::string why_;
};

// What an agreement takes where all goes well: two looks 10 ms apart and a few round trips.
inline constexpr absl::Duration kAgreeingTime = absl::Milliseconds(50);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_STOP_STEP_H_
