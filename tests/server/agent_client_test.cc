#include "tools/watch/own_machine.h"

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ddprun/agent/v1/agent.grpc.pb.h"
#include "tests/support/slow.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

// An agent that answers all calls with one status.
class AnsweringAgent final : public agent::v1::Agent::Service {
 public:
  explicit AnsweringAgent(grpc::Status status) : status_(std::move(status)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  grpc::Status ReadLogs(grpc::ServerContext* /*context*/,
                        const agent::v1::ReadLogsRequest* /*request*/,
                        grpc::ServerWriter<agent::v1::LogPiece>* /*writer*/) override {
    return status_;
  }
  grpc::Status GetNodeState(grpc::ServerContext* /*context*/,
                            const agent::v1::GetNodeStateRequest* /*request*/,
                            agent::v1::NodeState* /*reply*/) override {
    return status_;
  }
  absl::Status LogsOf() const {
    return launcher::ReadLogs(Target(), {}, [](const agent::v1::LogPiece& /*piece*/) {}, {});
  }
  absl::Status StateOf() const {
    return FetchNodeState(Target(), absl::Seconds(5) * Slow()).status();
  }
  std::string Target() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const grpc::Status status_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// gRPC ends the calls of a server that shuts down as cancelled, without a text. A client that looks
// for its own agent among those of a machine then asks the next one.
TEST(AgentClient, AnAgentThatEndsIsNotThere) {
  const AnsweringAgent agent(grpc::Status(grpc::StatusCode::CANCELLED, ""));
  for (const absl::Status& status : {agent.LogsOf(), agent.StateOf()}) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(status.message(), agent.Target() + ": the agent there ends");
  }
}

TEST(AgentClient, TwinARefusalStaysOne) {
  const AnsweringAgent agent(grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "another job"));
  for (const absl::Status& status : {agent.LogsOf(), agent.StateOf()}) {
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("another job"));
  }
}

}  // namespace
}  // namespace ddprun::launcher
