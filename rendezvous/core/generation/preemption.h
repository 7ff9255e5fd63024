#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_PREEMPTION_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_PREEMPTION_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/instant.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/generation/stop_step.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::rendezvous {

// The preemption of nodes: the step at which all members stop before the nodes are taken away, and
// whether the job can go on without these nodes (R14). Members are named by group rank. Pure.
//
//   Open ─Announce─► agreeing ─(commit)─► committed, until the generation is over
//                        └───(given up; or the generation ends for something else)─► none
class Preemption {
 public:
  using Action = StopAgreement::Action;

  // Params: life: of the service; agreements of different lives have different rounds.
  explicit Preemption(uint64_t life = 0);

  // A generation has its ranks.
  void Open();
  // A member's node is about to be taken away. Params: host: its name; agreeing: the members that
  // agree on a step; nullopt = no step can be agreed on, because the generation already ends.
  Action Announce(Instant now, const std::string& host, const Preempt& preempt,
                  std::optional<std::set<uint32_t>> agreeing);
  // A node left because it is taken away. The first call's reason counts.
  void NoteLeft(const std::string& reason);
  // A member answers, ends well, or the agreement's time may be over.
  Action Add(Instant now, uint32_t group_rank, const StopPrepared& prepared);
  Action Drop(Instant now, uint32_t group_rank);
  Action OnTimer(Instant now);
  // The generation ends. An agreement in progress is dropped.
  void BeginClosing();
  // A member ends without reaching the step. Returns true if the others need not wait for the step
  // either.
  bool Abandon();

  bool agreeing() const { return stop_.active(); }
  bool committed() const { return stop_.committed(); }
  // The member hasn't answered Question().
  bool awaits(uint32_t group_rank) const { return stop_.awaits(group_rank); }
  PrepareStop Question(Generation generation) const;
  uint32_t round() const { return stop_.round(); }
  uint64_t step() const { return stop_.step(); }  // 0 = none is agreed on or proposed
  Instant until() const { return stop_.until(); }
  Instant deadline() const { return stop_.deadline(); }
  // Why the preemption ends the generation: for people, and as a trigger: "preempted", "drained".
  const std::string& why() const { return why_; }
  const std::string& trigger() const { return trigger_; }
  // Why no step was agreed on.
  const std::string& given_up() const { return stop_.why(); }

  // Restores taken() and takes_service() from the record of the service's former life.
  void Recover(std::string taken, bool takes_service);
  // Why nodes are taken away; "" = none is, or they were drained. takes_service: whether one of
  // them hosts the service.
  const std::string& taken() const { return taken_; }
  bool takes_service() const { return takes_service_; }

  // Why the job ends, if it can't go on with `left` nodes; nullopt = it goes on.
  std::optional<std::string> EndsJob(const JobSpec& spec, uint32_t left) const;

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  uint64_t life_;
  StopAgreement stop_;
  std::string why_;             // of the agreement; not empty while there is one
  std::string trigger_;         // "preempted" or "drained" while there is one
  std::string taken_;           // why nodes are taken away; "" = none is, or they were drained
  bool takes_service_ = false;  // one of them has the service
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_PREEMPTION_H_
