#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_SERVER_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/tls_files.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/server/core/doorkeeper.h"

namespace ddprun::launcher {

class LogCatalog;

struct AgentServerOptions {
  std::string socket_path;  // unix socket for this node's workers
  // "0.0.0.0:0" style address for the agents of other nodes; "" = none (one node).
  std::string peer_listen;
  std::vector<uint16_t> avoided_ports;  // if peer_listen has port 0
  std::string run_id;
  std::string node_address;  // how other nodes reach this one
  uint32_t worker_count = 1;
  uint32_t max_restarts = 0;
  std::string token;  // the job's secret; "" = none
  TlsFiles tls;       // of peer_listen, and towards other nodes' agents; none = without TLS
  // Returns the answer to GetNodeState; never null. Called on the loop, until Shutdown.
  std::function<agent::v1::NodeState()> node_state;
  // Called on the loop when workers' calls show something; may be null.
  // A worker waits for the end of its generation, to rejoin the next one.
  std::function<void(rendezvous::Generation, uint32_t local_rank, bool same_place)> on_can_rejoin;
  // Such a worker has let go of (released) its generation.
  std::function<void(rendezvous::Generation, uint32_t local_rank)> on_let_go;
  // A worker's program can be started ahead. May be called again.
  std::function<void(uint32_t local_rank)> on_can_park;
  // Answers KeepMemory. Called on the loop, until Shutdown.
  std::function<absl::StatusOr<agent::v1::KeptMemory>(const agent::v1::KeepMemoryRequest&)>
      keep_memory;
  std::shared_ptr<LogCatalog> logs;  // null = no output of workers goes to a file
  // How long a store call waits for a generation that its sender knows and this agent doesn't:
  // agents get their assignments one after the other.
  absl::Duration generation_wait = absl::Seconds(10);
  // How long after an operation's own timeout and the wait above rank 0's agent counts as silent.
  absl::Duration peer_patience = absl::Seconds(5);
  // Limits on unauthenticated TCP connections; nullopt = derived from the limit of descriptors.
  std::optional<rendezvous::DoorBounds> door;
  // Most calls open at a time; more get RESOURCE_EXHAUSTED. As many as may wait in a store.
  uint32_t calls_max = 1U << 16;
};

// proto agent/v1 for this node's workers (unix socket) and for the agents of other nodes (TCP,
// store calls only): the live assignment, and the key-value store of the current generation. The
// store's data lives at the agent of rank 0's node; others forward to it. docs/PROTOCOL.md,
// "Workers and their agent", has the rules. Threads: the loop's.
class AgentServer {
 public:
  // `loop` outlives the server. The directory of the socket exists and belongs to the job: the
  // socket is open to its owner only (0600). Errors: UNAVAILABLE — the address can't be bound,
  // INVALID_ARGUMENT — the socket's path is too long (107 bytes); the text names it.
  static absl::StatusOr<std::unique_ptr<AgentServer>> Start(EventLoop* loop,
                                                            AgentServerOptions options);
  // Calls Shutdown() unless that was done.
  virtual ~AgentServer() = default;

  // Port of the peer listener; 0 = none.
  virtual int peer_port() const = 0;
  // A generation begins: waiting GetAssignment calls are answered, a new empty store is opened, and
  // calls of older generations get ABORTED. Ignored unless it is newer than all before.
  // `kept`: local ranks of workers of the generation before, which can rejoin the next one, too.
  // Their calls wait for OnStarted.
  virtual void BeginGeneration(const rendezvous::Assignment& assignment,
                               const std::set<uint32_t>& kept) = 0;
  void BeginGeneration(const rendezvous::Assignment& assignment) {
    BeginGeneration(assignment, {});
  }
  // The keeper counts the worker to the generation. A kept worker gets its assignment only now,
  // because an earlier end wouldn't count as an end in this generation. Ignored unless the
  // generation is current and its workers aren't being stopped.
  virtual void OnStarted(rendezvous::Generation generation, uint32_t local_rank) = 0;
  // The workers of the generation are about to be stopped. AwaitGenerationEnd, even if called
  // later, returns to the local ranks `spared`; for others it gets ABORTED or FAILED_PRECONDITION.
  // Ignored unless the generation is the newest.
  virtual void EndTurn(rendezvous::Generation generation, const std::string& why,
                       const std::set<uint32_t>& spared) = 0;
  // The generation is over: its store is dropped, and its pending and later calls get ABORTED with
  // `why`. Ignored unless the generation is current.
  virtual void EndGeneration(rendezvous::Generation generation, const std::string& why) = 0;
  // The job is over: pending calls get ABORTED with `why`, and the socket is removed. Returns when
  // no gRPC callback runs, after 200 ms at most if a stopped caller doesn't read its answer.
  virtual void Shutdown(const std::string& why) = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_SERVER_H_
