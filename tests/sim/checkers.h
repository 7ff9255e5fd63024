#ifndef DDPRUN_TESTS_SIM_CHECKERS_H_
#define DDPRUN_TESTS_SIM_CHECKERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/core/message.h"
#include "rendezvous/core/state_machine.h"
#include "tests/sim/sim_node.h"

// What must hold whatever happens to a cluster; each check returns what is wrong, "" = nothing.
namespace ddprun::sim {

// R2, R11: the assignments of one generation give ranks 0..world-1, contiguous by node, group ranks
// once each, and agree on everything else.
std::string CheckRanks(const std::vector<rendezvous::Assignment>& assignments);

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

// R8: a job succeeds only when all workers of one generation ended with 0.
class SuccessTruth {
 public:
  void OnEnded(rendezvous::Generation generation, bool ok);
  std::string OnVerdict(const rendezvous::Verdict& verdict, uint32_t world_size) const;

 private:
  std::map<rendezvous::Generation, uint32_t> succeeded_;
};

// Everyone who has heard a verdict has heard the same, and ends accordingly.
class VerdictWatch {
 public:
  std::string OnExit(const launcher::Exit& exit);

 private:
  std::optional<rendezvous::Outcome> outcome_;
};

// The value of a note's field; "" without it.
std::string NoteField(const rendezvous::Note& note, const std::string& key);

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_CHECKERS_H_
