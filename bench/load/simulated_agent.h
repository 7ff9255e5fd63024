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

// When the agents of a run have received messages since the phase began, one time an agent.
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
// How many connections an agent has: one more for heartbeats if R4 has them.
size_t ConnectionsOfAgent(const LoadSettings& settings);

// An agent without workers: sends what a real agent sends, with the same code (ServiceStream,
// AttendCall), and reports at once what would take real workers time. Its node pretends to have
// eight workers that mark their progress. Threads: the loop's.
class SimulatedAgent final : public AgentLink::Handler {
 public:
  SimulatedAgent(const LinkPlace* place, const LoadSettings* settings, uint32_t number,
                 Tally* tally);

  void Begin() { own_.Begin(); }
  // Simulates the death of the agent's machine: the connections are closed.
  void Kill();
  // Simulates a stopped agent: the connections stay open, without answers.
  void Freeze();
  // Simulates the failure of a worker on its node, with all the texts that a failure may have.
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
  bool done_ = false;  // the agent has the verdict
  AgentLink own_;
  AgentLink beside_;  // for heartbeats
};

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_SIMULATED_AGENT_H_
