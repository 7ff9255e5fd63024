#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_STANDBY_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_STANDBY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// Where a job is: no generation runs yet; one does; its members stop; a verdict was given.
enum class JobPhase { kForming, kRunning, kClosing, kEnded };

// "forming", "running", "closing" or "ended".
std::string PhaseName(JobPhase phase);

// What nodes that wait for a rank are told about, the same for all.
struct Waiting {
  JobPhase phase = JobPhase::kForming;  // not kEnded
  std::string reason;                   // of the phase
  Generation generation;
  uint32_t members = 0;         // nodes of the live generation; 0 = there is none
  uint32_t candidates = 0;      // nodes that could start now
  bool grows = false;           // the generation takes newcomers in after the last call,
  absl::Duration least_uptime;  // and not before it has run for so long,
  uint32_t fruitless = 0;       // so many growths in a row gained nothing
  bool pausing = false;         // before a restart
  std::string missing;          // who is yet to come: "node ranks 3, 5"; "" = can't be said
  std::string recovering;       // who is awaited after a restart of the service; "" = nobody
  std::string after;            // why the last generation ended; "" = there was none
};

// What keeps one of them from starting, strongest first; all unset: nothing does.
struct Hindrance {
  Generation cleaning;               // workers of this one must end first
  std::optional<uint32_t> claim;     // of a node rank that is held by
  std::string holder;                // this host
  std::optional<uint32_t> failures;  // it is in quarantine for so many
};

// What a node hears that has no rank. Pure.
Standby StandbyFor(const JobSpec& spec, const Waiting& waiting, const Hindrance& hindrance);

// Whose text may have changed in this step. A node is told about its own join at once; about the
// others' at the next tick, so that a join doesn't cost a message to everyone.
class StandbyDue {
 public:
  void Mark(uint64_t node_order);
  // Params: due: false = but for those that are marked by themselves, nobody.
  void MarkAll(bool due = true) { all_ = due; }
  void Clear();

  bool any() const { return all_ || !nodes_.empty(); }
  bool all() const { return all_; }
  // By join order, as they were marked; they may be gone meanwhile.
  const std::vector<uint64_t>& nodes() const { return nodes_; }

 private:
  std::vector<uint64_t> nodes_;  // join orders, from 1
  bool all_ = false;             // whoever is in nodes_
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_STANDBY_H_
