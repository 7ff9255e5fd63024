#ifndef DDPRUN_TESTS_SERVER_AGENT_SERVER_FIXTURE_H_
#define DDPRUN_TESTS_SERVER_AGENT_SERVER_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/event_loop.h"
#include "ddprun/agent/v1/agent.grpc.pb.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "launcher/agent/agent_server.h"
#include "launcher/stores/peer_store.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/wire/grpc_settings.h"
#include "tests/support/loop_until.h"

namespace ddprun::launcher {

inline constexpr char kRunId[] = "job7";
inline constexpr uint32_t kLongMs = 60'000;  // longer than any test waits

// The result of one call, seen on the loop.
template <typename Reply>
struct Outcome {
  grpc::ClientContext context;
  Reply reply;
  bool done = false;
  absl::Status status;
};
using StoreOutcome = std::shared_ptr<Outcome<agent::v1::StoreReply>>;
using NodeStateOutcome = std::shared_ptr<Outcome<agent::v1::NodeState>>;
using MemoryOutcome = std::shared_ptr<Outcome<agent::v1::KeptMemory>>;
using AssignmentOutcome = std::shared_ptr<Outcome<agent::v1::WorkerAssignment>>;
using EndOutcome = std::shared_ptr<Outcome<agent::v1::GenerationEnd>>;

// A worker, or an agent of another node, as the server sees it. Its calls end on the loop.
class Client {
 public:
  // `target` as gRPC takes it: "unix:/path", "127.0.0.1:1234".
  Client(EventLoop* loop, const std::string& target) : loop_(loop) {
    stub_ = agent::v1::Agent::NewStub(
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                  rendezvous::ChannelSettings({.message_bytes = 100U << 20})));
  }

  // Begins a call; `request` is sent unchanged.
  StoreOutcome Send(const agent::v1::StoreRequest& request) {
    auto outcome = std::make_shared<Outcome<agent::v1::StoreReply>>();
    stub_->async()->Store(&outcome->context, &request, &outcome->reply,
                          [this, outcome](const grpc::Status& status) { End(outcome, status); });
    return outcome;
  }
  // Begins a call with one operation of a generation of our job: Send(3, [](auto* r) { … }).
  template <typename Fill>
  StoreOutcome Send(uint64_t generation, Fill fill) {
    agent::v1::StoreRequest request;
    request.set_run_id(kRunId);
    request.set_generation(generation);
    fill(&request);
    return Send(request);
  }
  StoreOutcome Set(uint64_t generation, const std::string& key, const std::string& value) {
    return Send(generation, [&](agent::v1::StoreRequest* request) {
      request->mutable_set()->set_key(key);
      request->mutable_set()->set_value(value);
    });
  }
  StoreOutcome Get(uint64_t generation, const std::string& key, uint32_t timeout_ms) {
    return Send(generation, [&](agent::v1::StoreRequest* request) {
      request->mutable_get()->set_key(key);
      request->mutable_get()->set_timeout_ms(timeout_ms);
    });
  }
  AssignmentOutcome GetAssignment(uint32_t local_rank, uint64_t after, uint32_t timeout_ms,
                                  bool can_park = false) {
    agent::v1::GetAssignmentRequest request;
    request.set_local_rank(local_rank);
    request.set_after_generation(after);
    request.set_timeout_ms(timeout_ms);
    request.set_can_park(can_park);
    auto outcome = std::make_shared<Outcome<agent::v1::WorkerAssignment>>();
    stub_->async()->GetAssignment(
        &outcome->context, &request, &outcome->reply,
        [this, outcome](const grpc::Status& status) { End(outcome, status); });
    return outcome;
  }
  EndOutcome AwaitGenerationEnd(uint32_t local_rank, uint64_t generation) {
    agent::v1::AwaitGenerationEndRequest request;
    request.set_local_rank(local_rank);
    request.set_generation(generation);
    auto outcome = std::make_shared<Outcome<agent::v1::GenerationEnd>>();
    stub_->async()->AwaitGenerationEnd(
        &outcome->context, &request, &outcome->reply,
        [this, outcome](const grpc::Status& status) { End(outcome, status); });
    return outcome;
  }
  MemoryOutcome KeepMemory(uint32_t local_rank, uint32_t slot, uint64_t bytes) {
    agent::v1::KeepMemoryRequest request;
    request.set_local_rank(local_rank);
    request.set_slot(slot);
    request.set_bytes(bytes);
    auto outcome = std::make_shared<Outcome<agent::v1::KeptMemory>>();
    stub_->async()->KeepMemory(
        &outcome->context, &request, &outcome->reply,
        [this, outcome](const grpc::Status& status) { End(outcome, status); });
    return outcome;
  }
  NodeStateOutcome GetNodeState() {
    static const agent::v1::GetNodeStateRequest kRequest;
    auto outcome = std::make_shared<Outcome<agent::v1::NodeState>>();
    stub_->async()->GetNodeState(
        &outcome->context, &kRequest, &outcome->reply,
        [this, outcome](const grpc::Status& status) { End(outcome, status); });
    return outcome;
  }

 private:
  template <typename Kind>
  void End(const std::shared_ptr<Kind>& outcome, const grpc::Status& status) {
    loop_->Post([outcome, status] {
      outcome->status = rendezvous::FromGrpcStatus(status);
      outcome->done = true;
    });
  }

  EventLoop* const loop_;
  std::unique_ptr<agent::v1::Agent::Stub> stub_;
};

// One loop with the agents of some nodes of one job on it, and their workers. Each test ends all
// the calls that it begins.
class AgentServerTest : public ::testing::Test {
 protected:
  AgentServerTest() {
    auto loop = EventLoop::Create();
    DDPRUN_CHECK(loop.ok(), "no event loop");
    loop_ = *std::move(loop);
    std::string path = absl::StrCat(::testing::TempDir(), "agentXXXXXX");
    DDPRUN_CHECK(mkdtemp(path.data()) != nullptr, path);
    directory_ = path;
  }
  ~AgentServerTest() override { rmdir(directory_.c_str()); }

  AgentServerOptions Options(const std::string& name) {
    return {.socket_path = absl::StrCat(directory_, "/", name),
            .peer_listen = "127.0.0.1:0",
            .run_id = kRunId,
            .node_address = name,
            .worker_count = 2,
            .max_restarts = 3,
            .node_state =
                [name] {
                  agent::v1::NodeState state;
                  state.set_node_id(name);
                  return state;
                },
            .keep_memory = [](const agent::v1::KeepMemoryRequest& request)
                -> absl::StatusOr<agent::v1::KeptMemory> {
              if (request.bytes() > 100) return absl::ResourceExhaustedError("100 bytes at most");
              agent::v1::KeptMemory kept;
              kept.set_path(absl::StrCat("/memory/", request.local_rank(), "/", request.slot()));
              kept.set_bytes(request.bytes());
              return kept;
            }};
  }
  std::unique_ptr<AgentServer> StartServer(AgentServerOptions options) {
    auto server = AgentServer::Start(loop_.get(), std::move(options));
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }
  std::string Target(const std::string& name) {
    return absl::StrCat("unix:", directory_, "/", name);
  }
  static std::string Peer(const AgentServer& server) {
    return absl::StrCat("127.0.0.1:", server.peer_port());
  }
  // `store_address` empty: rank 0 is on the node that gets it.
  static rendezvous::Assignment Generation(uint64_t number, std::string store_address = "") {
    rendezvous::Assignment assignment;
    assignment.generation = rendezvous::Generation(number);
    assignment.store_address = std::move(store_address);
    return assignment;
  }

  template <typename Kind>
  [[nodiscard]] bool Ends(const Kind& outcome) {
    return LoopUntil(loop_.get(), [&] { return outcome->done; });
  }
  template <typename Kind>
  Kind Finished(Kind outcome) {
    EXPECT_TRUE(Ends(outcome));
    return outcome;
  }
  // Ends the call and returns how, as "OK" or "CODE: text".
  template <typename Kind>
  std::string EndOf(const Kind& outcome) {
    return Ends(outcome) ? outcome->status.ToString() : "the call has not ended";
  }
  // Handles events until a call that began now was answered by the server behind `client`: what was
  // sent on its connection before has been handled then, too, but for what gRPC hands over late.
  void Settle(Client* client) { EXPECT_TRUE(Ends(client->GetAssignment(0, UINT64_MAX, 0))); }

  std::unique_ptr<EventLoop> loop_;
  std::string directory_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_SERVER_AGENT_SERVER_FIXTURE_H_
