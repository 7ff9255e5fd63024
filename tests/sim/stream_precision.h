#ifndef DDPRUN_TESTS_SIM_STREAM_PRECISION_H_
#define DDPRUN_TESTS_SIM_STREAM_PRECISION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/job/state_machine.h"

// What a service owes each stream: no event counts twice, and no node is lost when only its stream
// has broken. Each check returns what is wrong, "" = nothing.
namespace ddprun::sim {

// R6: an event that was processed does nothing when it comes again.
class RepeatWatch {
 public:
  // Called after a step. Params: was_due: the service had something to do even without the event.
  std::string OnStep(const rendezvous::Event& event, const std::vector<rendezvous::Effect>& effects,
                     bool was_due);
  // The service has died, and perhaps with it what it had processed.
  void Forget();
  uint64_t repeats() const { return repeats_; }

 private:
  std::set<rendezvous::StreamKey> open_;
  std::map<rendezvous::Incarnation, uint64_t> processed_;
  uint64_t repeats_ = 0;
};

// R4: a closed stream is proof only of a node that had just answered, and only after the grace; and
// no node is lost by it that comes back as soon as it can.
class CloseWatch {
 public:
  // Checks a node that counts as lost because its stream is closed. Params: back_since: since when
  // nothing keeps it from coming back; infinite = something does.
  static std::string OnLost(const rendezvous::Note& note, Instant back_since, Instant now,
                            const rendezvous::JobSpec& job, absl::Duration interval);
};

// R4: no more than 1024 nodes are probed in a second, except while more and more join.
class ProbeRate {
 public:
  std::string OnStep(Instant now, const std::vector<rendezvous::Effect>& effects);

 private:
  std::deque<std::pair<Instant, uint64_t>> ticks_;  // of the last second
  uint64_t probes_ = 0;                             // in them
  Instant steady_since_;
};

// R4: while no node is heard, no lease is judged; when one is heard again, the others get a lease.
class ExcuseWatch {
 public:
  std::string OnNote(const rendezvous::Note& note, Instant now, absl::Duration lease);
  void Forget() { excused_until_ = Instant(); }

 private:
  Instant excused_until_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_STREAM_PRECISION_H_
