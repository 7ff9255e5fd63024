#ifndef DDPRUN_TESTS_SIM_CHECKERS_H_
#define DDPRUN_TESTS_SIM_CHECKERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/verdict.h"
#include "tests/sim/sim_node.h"

// Invariants of a cluster under any faults; each check returns what is wrong, "" = nothing.
namespace ddprun::sim {

// An assignment, and the node to which the service sent it.
struct Told {
  rendezvous::Assignment assignment;
  const SimNode* node = nullptr;
};

// R2, R11: the assignments of one generation give ranks 0..world-1, contiguous by node, group ranks
// once each, and agree on everything else.
std::string CheckRanks(const std::vector<Told>& told);

// R1: generations are numbered without gaps, and a node never goes back to an older one.
class GenerationOrder {
 public:
  std::string OnFormed(rendezvous::Generation generation);
  std::string OnSpawned(rendezvous::Incarnation incarnation, rendezvous::Generation generation);

 private:
  rendezvous::Generation last_;
  std::map<rendezvous::Incarnation, rendezvous::Generation> spawned_;
};

// R1, R3: when a generation forms, workers of older ones are alive only on nodes that were lost.
std::string CheckOneLiveGeneration(rendezvous::Generation formed,
                                   const std::vector<const SimNode*>& nodes,
                                   const std::set<std::string>& lost_node_ids);

// R6: a Join is answered at once with a Welcome, or its stream is ended.
std::string CheckJoinAnswered(rendezvous::StreamKey stream,
                              const std::vector<rendezvous::Effect>& effects);

// R7: restarts are not charged beyond the limit, and not when a node was lost or left.
class BlameWatch {
 public:
  explicit BlameWatch(uint32_t max_restarts) : max_restarts_(max_restarts) {}
  std::string OnNote(const rendezvous::Note& note);

 private:
  uint32_t max_restarts_;
  uint32_t restarts_ = 0;
  bool any_gone_ = false;
  std::set<std::string> members_;
};

// R7: what rounds cost, counted by the checker itself from the notes: neither budget is exceeded,
// no round without a failure pauses, pauses keep their bound, and a rule that ends the job ends it.
class PolicyWatch {
 public:
  // Params: crashes: all that goes wrong is that the program fails at each start.
  PolicyWatch(const rendezvous::JobSpec& job, bool crashes) : job_(job), crashes_(crashes) {}
  std::string OnNote(const rendezvous::Note& note, Instant now);

 private:
  std::string OnClosed(const rendezvous::Note& note, Instant now);

  rendezvous::JobSpec job_;
  const bool crashes_;
  Instant formed_;
  absl::Duration uptime_;
  uint32_t charged_ = 0;
  uint32_t changes_ = 0;
  uint32_t starts_failed_ = 0;  // in a row
  Instant not_before_;
  std::string ending_rule_;  // the job must end with it now
};

// R2: a node in quarantine is a member only where the others don't suffice, and then the least
// number of them.
class QuarantineWatch {
 public:
  explicit QuarantineWatch(const rendezvous::JobSpec& job) : job_(job) {}
  void OnNote(const rendezvous::Note& note, Instant now);
  // `view` is that of the step that formed the generation.
  std::string OnFormed(const rendezvous::JobView& view, Instant now) const;

 private:
  bool Quarantined(const std::string& node, Instant now) const;

  rendezvous::JobSpec job_;
  std::map<std::string, std::vector<Instant>> failures_;
};

// R15: a machine that was drained has a rank in no generation that forms before it may join again.
class DrainWatch {
 public:
  std::string OnNote(const rendezvous::Note& note);

 private:
  std::set<std::string> drained_;
};

// R8: a job succeeds only when all workers of one generation ended with 0.
class SuccessTruth {
 public:
  void OnEnded(rendezvous::Generation generation, bool ok);
  std::string OnVerdict(const rendezvous::Verdict& verdict, uint32_t world_size) const;
  uint32_t succeeded(rendezvous::Generation generation) const;

 private:
  std::map<rendezvous::Generation, uint32_t> succeeded_;
};

// R14: all workers of a generation that stop at an agreed step stop at the same one.
class StopSteps {
 public:
  std::string OnStopped(rendezvous::Generation generation, uint64_t step);
  uint64_t count() const { return count_; }

 private:
  std::map<rendezvous::Generation, uint64_t> steps_;
  uint64_t count_ = 0;
};

// All nodes that have heard a verdict have heard the same one, and end accordingly.
class VerdictWatch {
 public:
  std::string OnExit(const launcher::Exit& exit);

 private:
  std::optional<rendezvous::Outcome> outcome_;
};

// Whether a note is of this event.
inline bool Is(const rendezvous::Note& note, absl::string_view event) {
  return note.event == event;
}
// The value of a note's field; "" without it.
const std::string& NoteField(const rendezvous::Note& note, absl::string_view key);
// The value of a field in milliseconds; infinite without it.
absl::Duration MillisecondsOf(const rendezvous::Note& note, absl::string_view key);

// The ids of a generation's nodes, by group rank: "ranks" is "n0=[0..1] n1=[2..2]".
std::vector<std::string> NodesOf(const rendezvous::Note& formed);

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_CHECKERS_H_
