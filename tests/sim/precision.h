#ifndef DDPRUN_TESTS_SIM_PRECISION_H_
#define DDPRUN_TESTS_SIM_PRECISION_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/timing.h"

// Checks that a service does neither too much nor too late: a node that answers isn't lost, a
// node that is done isn't missed, a job grows when it can and no more often than it gains. Each
// check returns what is wrong, "" = nothing.
namespace ddprun::sim {

// R4: a node that has been reachable for a lease isn't lost by its lease, whatever the service had
// to wait for meanwhile: its own loop, or its disk.
class LeasePrecision {
 public:
  // Called before each step of the service. Params: stream: the node's; 0 = it can't answer: it has
  // none, or is cut, frozen, or gone. Returns whether `stream` has changed.
  bool Observe(Instant now, int node, uint64_t stream, absl::Duration lease);
  // Checks a node that the service counts as lost because its lease is over. Params: most, least:
  // upper and lower bounds of the pace in force; slowest: message; disturbed: when the service last
  // was held up.
  std::string OnLeaseExpired(Instant now, int node, const rendezvous::ProbePace& most,
                             const rendezvous::ProbePace& least, absl::Duration slowest,
                             Instant disturbed) const;
  // Whether the node had been reachable for a lease, and ceased to be at that time.
  bool WasSoundAt(int node, Instant at) const;
  // Since when the node has been reachable; infinite = it isn't.
  Instant SoundSince(int node) const;

 private:
  struct Node {
    uint64_t stream = 0;
    Instant since = Instant::Infinite();
    // When the node last ceased to be reachable after a whole lease.
    Instant sound_until = Instant::Infinite();
  };
  std::vector<Node> nodes_;  // by number
};

// R4: a member that can't be heard any more counts as lost within its lease and a second, if the
// lease is proof; else when the other nodes, if they can go on without it, would have lost as much
// by waiting.
class LossBound {
 public:
  // Params: mute: nothing that the node sends arrives; wakes: grows whenever that may have changed.
  // Returns whether either has changed.
  bool Observe(Instant now, int node, bool mute, uint64_t wakes);
  // Checks a member of the running generation that isn't done, while others are heard.
  std::string OnLook(int node, absl::Duration lease, Instant now) const;
  // Checks such a member if the lease is no proof. Params: formed: when the generation was.
  std::string OnSilence(int node, const rendezvous::JobSpec& job, absl::Duration lease,
                        Instant formed, Instant now) const;
  // Whether so many nodes are sound that a generation could do without the others.
  void SawOthers(bool enough, Instant now);
  // The service began anew or was held up: what it waits for is extended.
  void Disturb(Instant until) { disturbed_ = std::max(disturbed_, until); }
  // No node is lost by its lease until then, and all have a whole lease from then on.
  void Excuse(Instant until);
  // The service noted that it was held up for so long: that isn't counted in the excuse either
  // (seed 2093845).
  void OnStall(absl::Duration stall, Instant now);
  Instant disturbed() const { return disturbed_; }

 private:
  struct Node {
    uint64_t wakes = 0;
    Instant mute_since = Instant::Infinite();
  };
  std::vector<Node> nodes_;  // by number
  Instant disturbed_;
  Instant excused_;
  Instant enough_since_ = Instant::Infinite();
};

// R4: silence ends no generation that can't go on without the silent one, unless the lease is
// proof.
class SilenceWatch {
 public:
  // Params: others: nodes that might be in a generation without the lost one, at most.
  std::string OnNote(const rendezvous::Note& note, const rendezvous::JobSpec& job, uint32_t others);

 private:
  bool running_ = false;
  std::vector<std::string> members_;
};

// R8: when all workers of a generation have ended with 0, the verdict follows within a second, plus
// the time for the writes of the record.
class SuccessBound {
 public:
  void OnAllDone(rendezvous::Generation generation, Instant now);
  // Called while the generation runs. Params: sound: since when all its nodes have been reachable.
  std::string OnLook(rendezvous::Generation generation, Instant sound, absl::Duration writes,
                     Instant now) const;
  void Disturb(Instant until) { disturbed_ = std::max(disturbed_, until); }

 private:
  rendezvous::Generation generation_;
  Instant done_ = Instant::Infinite();
  Instant disturbed_;
};

// R4: a service that hears nobody any more, all at once, loses nobody.
class IsolationWatch {
 public:
  // Nothing passes between the service and any node from now on. Params: sound: the nodes that were
  // reachable until then. hosted: one more is on the service's own machine, and heard.
  void OnCutOff(std::set<std::string> sound, bool hosted);
  // Messages pass again.
  void OnEnd() { sound_.clear(); }
  // What the service decided last may have died with it.
  void Forget() {
    sound_.clear();
    running_ = false;
  }
  std::string OnNote(const rendezvous::Note& note);

 private:
  void ForgetAlone();

  bool running_ = false;         // a generation, and nothing ends it
  std::set<std::string> sound_;  // empty: it isn't cut off
  bool hosted_ = false;
};

// R8, for decisions rather than messages: a node whose workers have all ended well isn't lost while
// the generation runs, and no generation with such a node ends for newcomers.
class DoneWatch {
 public:
  // The service took a report of all workers' success.
  void OnSucceeded(const rendezvous::NodeId& node) { done_.insert(node.value()); }
  // The service has died, and perhaps with it what it knew.
  void Forget() { done_.clear(); }
  std::string OnNote(const rendezvous::Note& note);
  bool IsDone(const std::string& node) const { return done_.contains(node); }

 private:
  bool running_ = false;
  std::set<std::string> done_;
};

// R3: growth comes when it can, and each that gains nothing doubles the uptime that the next needs.
class GrowthWatch {
 public:
  std::string OnNote(const rendezvous::Note& note, Instant now);
  // Called from time to time. Params: sound_newcomers: whether nodes wait that have been reachable
  // for a while.
  std::string OnLook(const rendezvous::JobView& view, bool sound_newcomers, Instant now);
  // A member that is done has gone, whatever its farewell says (seed 455401: it was preempted).
  void OnDoneGone() { member_done_ = true; }
  // The service began anew, or was held up: the wait for newcomers begins anew.
  void Disturb() { waiting_since_ = Instant::Infinite(); }

 private:
  Instant formed_;
  uint32_t generation_ = 0;  // of the last note; a slow record holds up the next one's
  uint32_t members_ = 0;
  uint32_t fruitless_ = 0;
  std::optional<uint32_t> members_before_;  // of a growth whose gain isn't known yet
  bool member_done_ = false;  // a member that was done has gone; no newcomer is let in then
  Instant waiting_since_ = Instant::Infinite();
};

// R2: without claims, nodes that stay keep their group ranks when the job gets no smaller.
class SlotWatch {
 public:
  std::string OnNote(const rendezvous::Note& note);

 private:
  std::vector<std::string> last_;  // node ids by group rank
};

// R11: no two generations have one master address and port, if their rank 0s have listened there.
class PortWatch {
 public:
  std::string OnSpawned(const rendezvous::Assignment& assignment);

 private:
  std::map<std::pair<std::string, uint32_t>, rendezvous::Generation> used_;
};

// R2: a node isn't blamed for workers that were killed from outside.
class OutsideKills {
 public:
  // A worker of the generation ends by a fault of its own.
  void OnOwnFailure(rendezvous::Generation generation) { own_.insert(generation); }
  std::string OnNote(const rendezvous::Note& note) const;

 private:
  std::set<rendezvous::Generation> own_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_PRECISION_H_
