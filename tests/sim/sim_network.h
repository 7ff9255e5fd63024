#ifndef DDPRUN_TESTS_SIM_SIM_NETWORK_H_
#define DDPRUN_TESTS_SIM_SIM_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "absl/status/status.h"
#include "base/rng.h"
#include "rendezvous/core/message.h"
#include "tests/sim/event_queue.h"

namespace ddprun::sim {

// Streams between the agents of numbered nodes and one service. Within a direction of a stream
// messages keep their order; delays are random, so streams overtake each other. A cut direction
// holds what is sent, as TCP does, and lets it through when it heals. Losing a message for good
// means losing the stream.
class SimNetwork {
 public:
  // What an end of a stream is told. `epoch` is what the agent gave to Connect, so that a restarted
  // agent can tell its streams from those of its predecessor.
  struct Ends {
    std::function<void(int node, uint64_t epoch, uint64_t stream)> opened;
    std::function<void(int node, uint64_t epoch, uint64_t stream, rendezvous::ServiceMessage)>
        to_agent;
    std::function<void(int node, uint64_t epoch, uint64_t stream, absl::Status)> agent_closed;
    std::function<void(uint64_t stream, rendezvous::AgentMessage)> to_service;
    std::function<void(uint64_t stream)> service_closed;
  };

  SimNetwork(EventQueue* queue, Rng* rng, Ends ends);

  // All messages take 1 ms.
  void SetCalm(bool calm) { calm_ = calm; }
  // Tries to open a stream: `opened` follows, or `agent_closed` with UNAVAILABLE and stream 0.
  void Connect(int node, uint64_t epoch);
  void SendToService(uint64_t stream, rendezvous::AgentMessage message);
  void SendToAgent(uint64_t stream, rendezvous::ServiceMessage message);
  // The agent half-closes: the service ends the stream with OK.
  void Finish(uint64_t stream);
  // The service ends it with a status.
  void End(uint64_t stream, absl::Status status);
  // The stream dies: a reset, a lost message, the death of the agent.
  void Break(uint64_t stream);
  // Stops or lets through what goes to the service, and to the agent, of a node.
  void SetCut(int node, bool to_service, bool to_agent);
  bool IsCut(int node) const;
  // How often its cut was changed.
  uint64_t heals(int node) const;
  // From now on nobody can connect; open streams stay.
  void SetServiceDown() { service_down_ = true; }
  // The service's process dies: all streams break, and nobody can connect. And another one listens.
  void KillService();
  void StartService() { service_dead_ = false; }

 private:
  struct Direction {
    Instant last;  // no delivery before this one
    std::deque<std::function<void()>> held;
  };
  struct Stream {
    int node = 0;
    uint64_t epoch = 0;
    bool agent_knows = true;    // not told yet that it is closed
    bool service_knows = true;  // same
    Direction up;
    Direction down;
  };
  struct Cut {
    bool up = false;
    bool down = false;
    uint64_t changes = 0;
  };

  absl::Duration Delay();
  void Deliver(uint64_t key, bool up, std::function<void()> call);
  void Arrive(uint64_t key, bool up, std::function<void()> call);
  void TellAgentClosed(uint64_t key, const absl::Status& status);
  void TellServiceClosed(uint64_t key);

  EventQueue* queue_;
  Rng* rng_;
  Ends ends_;
  uint64_t next_stream_ = 1;
  std::map<uint64_t, Stream> streams_;
  std::map<int, Cut> cuts_;
  bool calm_ = false;
  bool service_down_ = false;
  bool service_dead_ = false;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_NETWORK_H_
