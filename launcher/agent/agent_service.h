#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_SERVICE_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_SERVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "base/event_loop.h"
#include "ddprun/agent/v1/agent.grpc.pb.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "launcher/agent/agent_server.h"
#include "launcher/stores/core/key_value_store.h"

namespace ddprun::launcher {

// A request and the reply to fill in; both live until the call is answered.
struct AssignmentExchange {
  const agent::v1::GetAssignmentRequest* request;
  agent::v1::WorkerAssignment* reply;
};
struct StoreExchange {
  const agent::v1::StoreRequest* request;
  agent::v1::StoreReply* reply;
  StoreOperation operation;  // the parsed request
  std::string peer;          // gRPC's name of another node's agent; "" = a worker of this node
};
struct EndExchange {
  const agent::v1::AwaitGenerationEndRequest* request;
  agent::v1::GenerationEnd* reply;
};
struct MemoryExchange {
  const agent::v1::KeepMemoryRequest* request;
  agent::v1::KeptMemory* reply;
};
struct StateExchange {
  agent::v1::NodeState* reply;
};

class AgentService;

// One call from its arrival until gRPC is done with it. Holds a reference to itself until then; the
// loop holds another one until it has answered.
class AgentCall final : public grpc::ServerUnaryReactor {
 public:
  using Exchange =
      std::variant<AssignmentExchange, EndExchange, StoreExchange, MemoryExchange, StateExchange>;

  // `service` outlives gRPC's interest in the call.
  static std::shared_ptr<AgentCall> Create(AgentService* service, uint64_t id, Exchange exchange);

  uint64_t id() const { return id_; }
  // Must not be used after Answer().
  Exchange& exchange() { return exchange_; }

  // Ends the call; to be called once. Requires for OK: the reply is filled in. Threads: gRPC's
  // before the call has reached the loop, then the loop's.
  void Answer(const absl::Status& status);

 private:
  AgentCall(AgentService* service, uint64_t id, Exchange exchange)
      : service_(service), id_(id), exchange_(std::move(exchange)) {}

  void OnCancel() override;
  void OnDone() override;

  AgentService* const service_;
  const uint64_t id_;
  Exchange exchange_;
  std::shared_ptr<AgentCall> self_;  // until OnDone
};

// The gRPC side of proto agent/v1: makes the checks that don't need the agent's state, and passes
// the calls to the loop. Workers connect over the unix socket, agents of other nodes over TCP.
class AgentService final : public agent::v1::Agent::CallbackService {
 public:
  // The loop's handlers of calls.
  struct Handlers {
    // The loop owns the call from now on, and must answer it.
    std::function<void(std::shared_ptr<AgentCall>)> on_call;
    // The caller of this id is gone. May come after the answer.
    std::function<void(uint64_t id)> on_cancel;
    // The client on the connection of gRPC's `peer` is authorized to read logs.
    std::function<void(const std::string& peer)> on_reader;
  };

  // `options` outlive the service.
  AgentService(const AgentServerOptions& options, std::shared_ptr<LoopInbox> inbox,
               Handlers handlers);

  // Threads of all that follows: gRPC's.
  grpc::ServerUnaryReactor* GetAssignment(grpc::CallbackServerContext* context,
                                          const agent::v1::GetAssignmentRequest* request,
                                          agent::v1::WorkerAssignment* reply) override;
  grpc::ServerUnaryReactor* AwaitGenerationEnd(grpc::CallbackServerContext* context,
                                               const agent::v1::AwaitGenerationEndRequest* request,
                                               agent::v1::GenerationEnd* reply) override;
  grpc::ServerUnaryReactor* Store(grpc::CallbackServerContext* context,
                                  const agent::v1::StoreRequest* request,
                                  agent::v1::StoreReply* reply) override;
  grpc::ServerUnaryReactor* KeepMemory(grpc::CallbackServerContext* context,
                                       const agent::v1::KeepMemoryRequest* request,
                                       agent::v1::KeptMemory* reply) override;
  grpc::ServerUnaryReactor* GetNodeState(grpc::CallbackServerContext* context,
                                         const agent::v1::GetNodeStateRequest* request,
                                         agent::v1::NodeState* reply) override;
  grpc::ServerWriteReactor<agent::v1::LogPiece>* ReadLogs(
      grpc::CallbackServerContext* context, const agent::v1::ReadLogsRequest* request) override;
  void OnCancel(uint64_t id);
  void OnDone();

 private:
  absl::Status CheckPeer(const grpc::CallbackServerContext& context) const;
  absl::Status CheckLogs(const agent::v1::ReadLogsRequest& request, const std::string& peer) const;
  // Checks a call for `what` by a worker that claims this local rank.
  absl::Status CheckWorker(absl::string_view what, uint32_t local_rank, bool from_peer) const;
  absl::Status CheckStore(const agent::v1::StoreRequest& request) const;
  grpc::ServerUnaryReactor* Accept(AgentCall::Exchange exchange, absl::Status checked);

  const AgentServerOptions& options_;
  const std::shared_ptr<LoopInbox> inbox_;
  const Handlers handlers_;
  std::atomic<uint64_t> last_id_{0};
  std::atomic<size_t> calls_{0};        // open calls
  std::atomic<size_t> log_readers_{0};  // open ReadLogs calls
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_SERVICE_H_
