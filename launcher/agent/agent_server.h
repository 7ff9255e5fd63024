#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_SERVER_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "rendezvous/core/message.h"

namespace ddprun::launcher {

struct AgentServerOptions {
  std::string socket_path;  // unix socket for this node's workers
  // "0.0.0.0:0" style address for the agents of other nodes; "" = none (one node).
  std::string peer_listen;
  std::string run_id;
  std::string node_address;  // how other nodes reach this one
  uint32_t worker_count = 1;
  uint32_t max_restarts = 0;
};

// proto agent/v1 for this node's workers (unix socket) and for the agents of other nodes (TCP): the
// live assignment, and the key-value store of the current generation. The store's data lives at the
// agent of rank 0's node; others forward to it.
// Threads: the loop's.
class AgentServer {
 public:
  // Errors: UNAVAILABLE — the address can't be bound; the text names it.
  static absl::StatusOr<std::unique_ptr<AgentServer>> Start(EventLoop* loop,
                                                            AgentServerOptions options);
  virtual ~AgentServer() = default;

  // Port of the peer listener; 0 = none.
  virtual int peer_port() const = 0;
  // A generation begins: waiting GetAssignment calls are answered, a new empty store is opened, and
  // calls of older generations get ABORTED.
  virtual void BeginGeneration(const rendezvous::Assignment& assignment) = 0;
  // The generation is over: its store is dropped, its pending calls get ABORTED with `why`.
  virtual void EndGeneration(rendezvous::Generation generation, const std::string& why) = 0;
  // The job is over: everything pending gets ABORTED with `why`. Returns when no callback runs.
  virtual void Shutdown(const std::string& why) = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_SERVER_H_
