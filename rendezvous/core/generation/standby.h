#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_STANDBY_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_STANDBY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::rendezvous {

// The phase of a job: no generation runs so far; one runs; its members stop; the verdict was given.
enum class JobPhase { kForming, kRunning, kClosing, kEnded };

// "forming", "running", "closing" or "ended".
std::string PhaseName(JobPhase phase);

// The part of a Standby that is the same for all nodes that wait for a rank.
struct Waiting {
  JobPhase phase = JobPhase::kForming;  // not kEnded
  std::string reason;                   // of the phase
  Generation generation;
  uint32_t members = 0;         // nodes of the live generation; 0 = there is none
  uint32_t candidates = 0;      // nodes that could start now
  bool grows = false;           // the generation ends for newcomers after the last call,
  absl::Duration least_uptime;  // but not before it has run for this long
  uint32_t fruitless = 0;       // growths in a row that gained nothing
  bool pausing = false;         // in the pause before a restart
  std::string missing;          // nodes that haven't joined: "node ranks 3, 5"; "" = unknown
  std::string recovering;       // nodes awaited after a restart of the service; "" = none
  std::string after;            // why the last generation ended; "" = there was none
};

// What keeps a node from starting, strongest first; all unset: nothing does.
struct Hindrance {
  Generation cleaning;               // workers of this generation must end first
  std::optional<uint32_t> claim;     // the node's claim, held by `holder`
  std::string holder;                // this host
  std::optional<uint32_t> failures;  // in quarantine for this many failures
};

// The Standby for a node without a rank. Pure.
Standby StandbyFor(const JobSpec& spec, const Waiting& waiting, const Hindrance& hindrance);

// Nodes with a Standby that may have changed in this step. A node learns of its own join at once,
// and of the joins of others at the next tick, so that a join doesn't cost a message to every node.
class StandbyDue {
 public:
  void Mark(uint64_t node_order);
  // Params: due: false = only the nodes of Mark() are due.
  void MarkAll(bool due = true) { all_ = due; }
  void Clear();

  bool any() const { return all_ || !nodes_.empty(); }
  bool all() const { return all_; }
  // Join orders in the order of Mark(); the nodes may have gone meanwhile.
  const std::vector<uint64_t>& nodes() const { return nodes_; }

 private:
  std::vector<uint64_t> nodes_;  // join orders, from 1
  bool all_ = false;             // every node is due, also without Mark()
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_STANDBY_H_
