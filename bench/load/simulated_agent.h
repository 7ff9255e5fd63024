#ifndef DDPRUN_BENCH_LOAD_SIMULATED_AGENT_H_
#define DDPRUN_BENCH_LOAD_SIMULATED_AGENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/instant.h"
#include "bench/load/agent_link.h"
#include "bench/load/load_settings.h"
#include "launcher/core/supervisor/service_stream.h"

namespace ddprun::bench {

// What the agents of a run have heard since the phase began: when each of them did.
struct Tally {
  std::vector<Instant> welcomed;
  std::vector<Instant> stopped;
  std::vector<Instant> assigned;
  std::vector<Instant> verdict;
  std::vector<Instant> closed;             // streams, after the verdict too
  std::vector<absl::Duration> probe_gaps;  // between two probes of an agent, on any connection
  uint64_t messages = 0;
  uint64_t heartbeats_begun = 0;
};

// The job of all agents of a run.
rendezvous::JobSpec SpecOf(const LoadSettings& settings);
// How many connections an agent has: one more for heartbeats, where R4 has them.
size_t ConnectionsOfAgent(const LoadSettings& settings);

// An agent without workers: it says what a real one says, by the same parts (ServiceStream,
// AttendCall), and claims at once what workers would take their time for. Its node has eight
// workers that mark their progress. Threads: the loop's.
class SimulatedAgent final : public AgentLink::Handler {
 public:
  SimulatedAgent(const LinkPlace* place, const LoadSettings* settings, uint32_t number,
                 Tally* tally);

  void Begin() { own_.Begin(); }
  // Its machine loses its power, but the network says so.
  void Kill();
  // It is stopped: its connections stay, and nobody answers.
  void Freeze();
  // A worker of its node fails, with all the texts that a failure may have.
  void Fail();

  bool lives() const { return lives_; }
  bool welcomed() const { return stream_.is_welcomed(); }
  LinkBytes bytes() const;
  uint64_t generation() const { return generation_.value(); }

 private:
  void OnLinkOpen(AgentLink* link) override;
  void OnLinkMessage(AgentLink* link, rendezvous::ServiceMessage message) override;
  void OnLinkClosed(AgentLink* link) override;

  void On(const rendezvous::Welcome& welcome);
  void On(const rendezvous::Assignment& assignment);
  void On(const rendezvous::StopWorkers& stop);
  void On(const rendezvous::Verdict& verdict);
  void OnProbe(AgentLink* link, const rendezvous::Probe& probe);
  void Say(decltype(rendezvous::AgentMessage::body) body);
  void StopWorkers();

  const LinkPlace* const place_;
  const LoadSettings* const settings_;
  const uint32_t number_;
  Tally* const tally_;
  launcher::ServiceStream stream_;
  rendezvous::Generation generation_;  // the last that was assigned
  rendezvous::GroupState state_ = rendezvous::GroupState::kIdle;
  rendezvous::AgentMessage header_;  // of the stream that heartbeats belong to
  uint64_t heartbeat_key_ = 0;
  Instant probed_;
  bool lives_ = true;
  bool done_ = false;  // it has the verdict
  AgentLink own_;
  AgentLink beside_;  // for heartbeats
};

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_SIMULATED_AGENT_H_
