#ifndef DDPRUN_TESTS_SERVER_RENDEZVOUS_FIXTURE_H_
#define DDPRUN_TESTS_SERVER_RENDEZVOUS_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/event_log.h"
#include "base/event_loop.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/server/rendezvous_server.h"
#include "rendezvous/wire/grpc_settings.h"
#include "tests/support/loop_until.h"
#include "tests/support/raw_stream.h"
#include "tests/support/sample_messages.h"

namespace ddprun::rendezvous {

// A service and its agents on one loop.
class RendezvousFixture : public ::testing::Test {
 protected:
  RendezvousFixture() : loop_(*EventLoop::Create()) {}

  // Serves on a free port of loopback.
  void Serve(ServerOptions options = {}) {
    if (options.listen.empty()) options.listen = "127.0.0.1:0";
    token_ = options.token;
    auto server = RendezvousServer::Start(loop_.get(), &events_, std::move(options));
    DDPRUN_CHECK(server.ok(), server.status().ToString());
    server_ = *std::move(server);
  }

  std::string target() const { return absl::StrCat("127.0.0.1:", server_->port()); }

  std::unique_ptr<RawStream> Open(bool reads = true) {
    return std::make_unique<RawStream>(loop_.get(), server_->InProcessChannel(), reads);
  }
  std::unique_ptr<RawStream> JoinAs(const AgentMessage& join) {
    auto stream = Open();
    stream->Send(join);
    return stream;
  }

  ::testing::AssertionResult Until(const std::function<bool()>& done,
                                   absl::Duration limit = absl::Seconds(60) * Slow()) {
    if (LoopUntil(loop_.get(), done, limit)) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "not within " << absl::FormatDuration(limit);
  }
  ::testing::AssertionResult UntilDone(const RawStream& stream) {
    return Until([&stream] { return stream.done(); });
  }
  ::testing::AssertionResult UntilAssigned(const RawStream& stream) {
    return Until([&stream] { return stream.Last(&v1::ServiceMessage::has_assignment) != nullptr; });
  }

  // Asks the service for its status, over a call of its own.
  v1::GetStatusReply Status(const std::string& run_id = "") {
    auto stub = v1::Rendezvous::NewStub(server_->InProcessChannel());
    grpc::ClientContext context;
    v1::GetStatusRequest request;
    request.set_run_id(run_id);
    request.set_token(token_);
    v1::GetStatusReply reply;
    bool done = false;
    stub->async()->GetStatus(&context, &request, &reply, [&](const grpc::Status& status) {
      status_call_ = status;
      loop_->Post([&done] { done = true; });
    });
    EXPECT_TRUE(Until([&done] { return done; }));
    return reply;
  }

  EventLog events_;
  const std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<RendezvousServer> server_;
  std::string token_;         // of the jobs
  grpc::Status status_call_;  // of the last Status()
};

// The next event of the agent that sent `join`.
template <typename Body>
AgentMessage EventOf(const AgentMessage& join, uint64_t generation, uint64_t sequence, Body body) {
  AgentMessage message = join;
  message.generation = Generation(generation);
  message.sequence = sequence;
  message.body = std::move(body);
  return message;
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_SERVER_RENDEZVOUS_FIXTURE_H_
