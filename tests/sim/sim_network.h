#ifndef DDPRUN_TESTS_SIM_SIM_NETWORK_H_
#define DDPRUN_TESTS_SIM_SIM_NETWORK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/rng.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/core/service_message.h"
#include "tests/sim/event_queue.h"

namespace ddprun::sim {

// Streams between the agents of numbered nodes and one service, each with a connection beside it
// for heartbeats, if there are such. Within a direction of a connection messages keep their order;
// delays are random, so connections overtake each other. A cut direction holds what is sent, as TCP
// does, and lets it through when it heals. Losing a message for good means losing the stream.
class SimNetwork final : private EventQueue::Receiver {
 public:
  // What the network reports to the ends of a stream. `epoch` is what the agent passed to
  // Connect(): by it a restarted agent knows its own streams from its predecessor's.
  struct Ends {
    std::function<void(int node, uint64_t epoch, uint64_t stream)> opened;
    std::function<void(int node, uint64_t epoch, uint64_t stream, const rendezvous::ServiceMessage&,
                       bool beside)>
        to_agent;
    std::function<void(int node, uint64_t epoch, uint64_t stream, absl::Status)> agent_closed;
    // To a service: a message, or the end of a stream.
    std::function<void(size_t service, const rendezvous::Event&)> to_service;
  };

  SimNetwork(EventQueue* queue, Rng* rng, int nodes, Ends ends);

  // All messages take 1 ms.
  void SetCalm(bool calm) { calm_ = calm; }
  // What a retransmission takes at most.
  void SetSlowest(absl::Duration slowest) { slowest_us_ = absl::ToInt64Microseconds(slowest); }
  // Tries to open a stream: `opened` follows, or `agent_closed` with UNAVAILABLE and stream 0.
  void Connect(int node, uint64_t epoch);
  // Params: beside: over the connection for heartbeats.
  void SendToService(uint64_t stream, rendezvous::AgentMessage&& message, bool beside = false);
  void SendToAgent(uint64_t stream, rendezvous::SharedMessage message, bool beside = false);
  // The agent half-closes: the service ends the stream with OK.
  void Finish(uint64_t stream);
  // The service ends the stream with a status.
  void End(uint64_t stream, absl::Status status);
  // The stream dies: a reset, a lost message, the death of the agent. Params: unnoticed: for how
  // long the agent doesn't know.
  void Break(uint64_t stream, absl::Duration unnoticed = absl::ZeroDuration());
  // Cuts or heals the directions from a node to the service, and to the node's agent.
  void SetCut(int node, bool to_service, bool to_agent);
  bool IsCut(int node) const { return cut_of(node).up || cut_of(node).down; }
  // How often the node's cut was changed.
  uint64_t heals(int node) const { return cut_of(node).changes; }
  // When the node's cut was changed last.
  Instant healed_at(int node) const { return cut_of(node).at; }
  // Until when something of the node's takes longer than a local network does.
  Instant slow_until(int node) const { return slow_until_[static_cast<size_t>(node)]; }
  // From now on nobody can connect; open streams stay.
  void SetServiceDown() { service_down_ = true; }
  // A service's process dies: all its streams break, and nobody can connect until StartService().
  void KillService(size_t service);
  void StartService(size_t service) { dead_.at(service) = false; }
  // Adds a service, which doesn't listen yet. Returns its number; the first one has 0.
  size_t AddService() {
    dead_.push_back(true);
    return dead_.size() - 1;
  }
  // A node's agent has heard that this service has the job, and connects to it from now on.
  void SetLeader(int node, size_t service) { leaders_[static_cast<size_t>(node)] = service; }
  size_t leader(int node) const { return leaders_[static_cast<size_t>(node)]; }
  // Requires: a stream that was opened.
  size_t ServiceOf(uint64_t stream) const { return streams_[stream - 1]->service; }

 private:
  // The directions of a stream, and of the connection beside it.
  enum Lane { kUp, kDown, kUpBeside, kDownBeside };
  static constexpr uint64_t kLanes = 4;
  // A message, or what is done at its arrival.
  using Sent =
      std::variant<Call, std::unique_ptr<const rendezvous::Event>, rendezvous::SharedMessage>;
  struct Direction {
    Instant last;            // no delivery before this one
    std::vector<Sent> sent;  // in order
    size_t arrived = 0;      // of them
    uint64_t held = 0;       // of the others, those that have come as far as a cut
  };
  struct Stream {
    int node = 0;
    size_t service = 0;
    uint64_t epoch = 0;
    bool agent_knows = true;    // false: its end was reported to the agent
    bool service_knows = true;  // same
    std::array<Direction, kLanes> lanes;
  };
  struct Cut {
    bool up = false;
    bool down = false;
    uint64_t changes = 0;
    Instant at;
  };

  // Keys count from 1, the same at both ends.
  Stream* Find(uint64_t key) {
    return key == 0 || key > streams_.size() ? nullptr : streams_[key - 1].get();
  }
  const Cut& cut_of(int node) const { return cuts_[static_cast<size_t>(node)]; }
  bool Holds(int node, int lane) const;
  absl::Duration Delay(int node, bool beside = false);
  void Deliver(uint64_t key, Lane lane, Sent sent);
  void Take(uint64_t key, Lane lane, Sent& sent);
  void PostArrival(Instant at, uint64_t key, Lane lane);
  void OnDue(uint64_t arrival) override;
  void NotifyAgentClosed(uint64_t key, const absl::Status& status);
  void NotifyServiceClosed(uint64_t key, bool finished);

  EventQueue* queue_;
  Rng* rng_;
  Ends ends_;
  std::vector<std::unique_ptr<Stream>> streams_;   // key 1 first
  std::vector<std::vector<uint64_t>> streams_of_;  // keys by node, in order
  std::vector<Cut> cuts_;                          // by node
  std::vector<Instant> slow_until_;
  bool calm_ = false;
  int64_t slowest_us_ = 300'000;
  bool service_down_ = false;
  std::vector<bool> dead_ = {false};  // by service
  std::vector<size_t> leaders_;       // by node
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_NETWORK_H_
