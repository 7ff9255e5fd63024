#include "rendezvous/client/rendezvous_client.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/rng.h"
#include "rendezvous/wire/grpc_listener.h"
#include "tests/server/rendezvous_fixture.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

struct Closed {
  absl::Status status;
  bool will_retry;
  Instant at;
};

class ClientTest : public RendezvousFixture {
 protected:
  void Connect(const std::string& to) { Connect(ClientOptions{.target = to}); }
  void Connect(const ClientOptions& options) {
    began_ = loop_->Now();
    client_ = RendezvousClient::Start(
        loop_.get(), options,
        {.on_stream_open =
             [this] {
               opened_.push_back(loop_->Now());
               if (join_.has_value()) {
                 join_->stream = StreamNumber(opened_.size());
                 EXPECT_TRUE(client_->Send(*join_));
               }
             },
         .on_message = [this](ServiceMessage message) { messages_.push_back(std::move(message)); },
         .on_stream_closed =
             [this](absl::Status status, bool will_retry) {
               closed_.push_back({std::move(status), will_retry, loop_->Now()});
             }});
  }
  template <typename Body>
  bool Got() const {
    return std::any_of(messages_.begin(), messages_.end(), [](const ServiceMessage& message) {
      return std::holds_alternative<Body>(message);
    });
  }
  // From a new client's start to the end of its first try; `finish`: Finish() is called at once.
  absl::Duration TimeToFirstEnd(const std::string& to, bool finish) {
    closed_.clear();
    Connect(to);
    if (finish) client_->Finish();
    if (!Until([this] { return !closed_.empty(); })) return absl::InfiniteDuration();
    return closed_[0].at - began_;
  }
  std::string Text(size_t index) const { return std::string(closed_.at(index).status.message()); }
  // A listener whose connections nobody serves, and its target.
  Fd Mute(std::string* to) {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    DDPRUN_CHECK(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     listen(fd.get(), 8) == 0 &&
                     getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
                 "no listener");
    *to = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    return fd;
  }

  std::optional<AgentMessage> join_;  // sent on each stream
  Instant began_;
  std::vector<Instant> opened_;
  std::vector<ServiceMessage> messages_;
  std::vector<Closed> closed_;
  std::unique_ptr<RendezvousClient> client_;
};

TEST_F(ClientTest, AJobFromJoinToVerdict) {
  Serve();
  join_ = SampleJoin("job7", "a");
  Connect(target());
  ASSERT_TRUE(Until([this] { return Got<Assignment>(); }));
  EXPECT_TRUE(std::holds_alternative<Welcome>(messages_[0]));
  EXPECT_TRUE(client_->Send(EventOf(*join_, 1, 1, GroupSucceeded{})));
  ASSERT_TRUE(Until([this] { return Got<Verdict>(); }));
  client_->Finish();
  EXPECT_FALSE(client_->Send(*join_)) << "after Finish";
  ASSERT_TRUE(Until([this] { return !closed_.empty(); }));
  EXPECT_TRUE(closed_[0].status.ok()) << closed_[0].status;
  EXPECT_FALSE(closed_[0].will_retry);
  EXPECT_EQ(opened_.size(), 1U);
}

TEST_F(ClientTest, OverAUnixSocket) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/client.", getpid());
  Serve({.listen = absl::StrCat("unix:", path)});
  join_ = SampleJoin("job7", "a");
  Connect(absl::StrCat("unix:", path));
  EXPECT_TRUE(Until([this] { return Got<Assignment>(); }));
}

TEST_F(ClientTest, OverTheInProcessChannel) {
  Serve();
  bool open = false;
  const auto client =
      RendezvousClient::Start(loop_.get(), {.target = "test"},
                              {.on_stream_open = [&open] { open = true; },
                               .on_message = [](const ServiceMessage&) {},
                               .on_stream_closed = [](const absl::Status&, bool) {}},
                              server_->InProcessChannel());
  EXPECT_TRUE(Until([&open] { return open; }));
}

TEST_F(ClientTest, TellsWhyATryFailedAndGoesOn) {
  Connect("127.0.0.1:1");
  ASSERT_TRUE(Until([this] { return closed_.size() == 4; }));
  for (const Closed& closed : closed_) {
    EXPECT_TRUE(absl::IsUnavailable(closed.status)) << closed.status;
    EXPECT_EQ(closed.status.message(), "127.0.0.1:1: Connection refused");
    EXPECT_TRUE(closed.will_retry);
  }
  EXPECT_LT(closed_[0].at - began_, absl::Seconds(1) * Slow());
  // 25, 50 and 100 ms, each shortened by up to 20 %.
  EXPECT_GE(closed_[1].at - closed_[0].at, absl::Milliseconds(20));
  EXPECT_GE(closed_[2].at - closed_[1].at, absl::Milliseconds(40));
  EXPECT_GE(closed_[3].at - closed_[2].at, absl::Milliseconds(80));
  EXPECT_LT(closed_[3].at - began_, absl::Seconds(3) * Slow());
  EXPECT_TRUE(opened_.empty());
}

TEST_F(ClientTest, ThePauseHasAMost) {
  Connect({.target = "127.0.0.1:1",
           .reconnect = {.first = absl::Milliseconds(1), .longest = absl::Milliseconds(4)}});
  EXPECT_TRUE(Until([this] { return closed_.size() == 100; }, absl::Seconds(5) * Slow()));
}

TEST_F(ClientTest, ANameWithoutAddressIsTriedAgain) {
  Connect("no-such-host.invalid:29400");
  size_t tries = 1;
  const auto next = [&] {
    EXPECT_TRUE(Until([&] { return closed_.size() > tries; }));
    ++tries;
    return closed_[tries - 1].at - closed_[tries - 2].at;
  };
  // Not with the resolver's own back-off of a second.
  constexpr absl::Duration kSoon = absl::Milliseconds(900);
  EXPECT_LT(Shortest(kSoon, next), kSoon);
  EXPECT_THAT(Text(0), HasSubstr("no address for no-such-host.invalid:29400"));
  EXPECT_TRUE(closed_[0].will_retry);
}

TEST_F(ClientTest, AMutePeerIsReportedWithinTwoSeconds) {
  std::string to;
  const Fd mute = Mute(&to);
  constexpr absl::Duration kSoon = absl::Seconds(2);
  EXPECT_LT(Shortest(kSoon, [&] { return TimeToFirstEnd(to, false); }), kSoon);
  EXPECT_THAT(Text(0), HasSubstr("something listens there, but does not answer"));
  EXPECT_TRUE(closed_[0].will_retry);
}

// A server that takes the connection and speaks something else.
class ForeignServer {
 public:
  ForeignServer(Fd listener, std::string answer) : listener_(std::move(listener)) {
    thread_ = std::thread([this, answer = std::move(answer)] {
      std::vector<Fd> connections;
      for (;;) {
        Fd connection(accept(listener_.get(), nullptr, nullptr));
        if (!connection.valid()) return;
        if (answer.empty()) continue;  // closes it
        send(connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
        connections.push_back(std::move(connection));
      }
    });
  }
  ~ForeignServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  Fd listener_;
  std::thread thread_;
};

TEST_F(ClientTest, APeerThatIsSomethingElseEndsTheTries) {
  for (const char* answer :
       {"SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"}) {
    closed_.clear();
    std::string to;
    Fd listener = Mute(&to);
    const ForeignServer server(std::move(listener), answer);
    Connect(to);
    ASSERT_TRUE(Until([this] { return !closed_.empty(); }));
    EXPECT_FALSE(closed_[0].will_retry) << closed_[0].status;
    EXPECT_THAT(Text(0), AllOf(HasSubstr(to), HasSubstr("is not a ddprun rendezvous service")));
  }
}

TEST_F(ClientTest, AnotherGrpcServiceEndsTheTries) {
  v1::Rendezvous::Service other;  // answers UNIMPLEMENTED
  const auto listener = StartGrpcListener("127.0.0.1:0", &other);
  ASSERT_TRUE(listener.ok());
  Connect(absl::StrCat("127.0.0.1:", listener->port));
  ASSERT_TRUE(Until([this] { return !closed_.empty(); }));
  EXPECT_FALSE(closed_[0].will_retry);
  EXPECT_THAT(Text(0), HasSubstr("is not a ddprun rendezvous service, or one of an older release"));
  EXPECT_TRUE(opened_.empty());
}

// A peer that hangs up may be a service that is just dying, so the client tries again.
TEST_F(ClientTest, APeerThatHangsUpIsTriedAgain) {
  std::string to;
  Fd listener = Mute(&to);
  const ForeignServer server(std::move(listener), "");
  Connect(to);
  ASSERT_TRUE(Until([this] { return closed_.size() == 2; }));
  EXPECT_TRUE(closed_[1].will_retry) << closed_[1].status;
}

TEST_F(ClientTest, ARefusalEndsTheTries) {
  Serve({.only_run_id = "job7"});
  join_ = SampleJoin("job8", "a");
  Connect(target());
  ASSERT_TRUE(Until([this] { return !closed_.empty(); }));
  EXPECT_TRUE(absl::IsAlreadyExists(closed_[0].status)) << closed_[0].status;
  EXPECT_FALSE(closed_[0].will_retry);
  EXPECT_THAT(Text(0), HasSubstr(absl::StrCat("rendezvous service at ", target(), ": ")));
}

TEST_F(ClientTest, ComesBackWhenTheServiceDoes) {
  constexpr absl::Duration kAtOnce = absl::Milliseconds(80);  // for the first retry
  constexpr absl::Duration kSoon = absl::Milliseconds(300);
  absl::Duration retried;
  const auto come_back = [&] {
    Serve();
    const std::string listen = target();
    join_ = SampleJoin("job7", "a");
    messages_.clear();
    closed_.clear();
    opened_.clear();
    Connect(listen);
    EXPECT_TRUE(Until([this] { return Got<Assignment>(); }));
    server_.reset();
    EXPECT_TRUE(Until([this] { return closed_.size() == 2; }));
    EXPECT_TRUE(absl::IsUnavailable(closed_[0].status)) << closed_[0].status;
    retried = closed_[1].at - closed_[0].at;
    Serve({.listen = listen});
    const Instant up = loop_->Now();
    EXPECT_TRUE(Until([this] { return opened_.size() == 2; }));
    return retried < kAtOnce ? opened_[1] - up : absl::InfiniteDuration();
  };
  EXPECT_LT(Shortest(kSoon, come_back), kSoon) << "the last first retry: " << retried;
}

TEST_F(ClientTest, FindsAServiceThatComesLate) {
  constexpr absl::Duration kSoon = absl::Milliseconds(300);
  const auto find = [this] {
    Serve();
    const std::string listen = target();
    server_.reset();
    closed_.clear();
    opened_.clear();
    Connect(listen);
    EXPECT_TRUE(Until([this] { return closed_.size() == 2; }));
    Serve({.listen = listen});
    const Instant up = loop_->Now();
    EXPECT_TRUE(Until([this] { return opened_.size() == 1; }));
    return opened_[0] - up;
  };
  EXPECT_LT(Shortest(kSoon, find), kSoon);
}

TEST_F(ClientTest, FinishBetweenTwoTries) {
  Connect("127.0.0.1:1");
  ASSERT_TRUE(Until([this] { return closed_.size() == 1; }));
  client_->Finish();
  EXPECT_EQ(closed_.size(), 1U) << "not from within the call";
  ASSERT_TRUE(Until([this] { return closed_.size() == 2; }));
  EXPECT_TRUE(absl::IsCancelled(closed_[1].status)) << closed_[1].status;
  EXPECT_FALSE(closed_[1].will_retry);
}

TEST_F(ClientTest, FinishWhileConnecting) {
  std::string to;
  const Fd mute = Mute(&to);
  constexpr absl::Duration kSoon = absl::Milliseconds(500);
  EXPECT_LT(Shortest(kSoon, [&] { return TimeToFirstEnd(to, true); }), kSoon);
  EXPECT_TRUE(absl::IsCancelled(closed_[0].status)) << closed_[0].status;
  EXPECT_FALSE(closed_[0].will_retry);
}

// Says nothing, reads nothing, and never ends a stream.
class StubbornService final : public v1::Rendezvous::CallbackService {
 public:
  ~StubbornService() override {
    for (auto* stream : streams_) delete stream;
  }
  grpc::ServerBidiReactor<v1::AgentMessage, v1::ServiceMessage>* Attend(
      grpc::CallbackServerContext* /*context*/) override {
    class Stream final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::ServiceMessage> {
     public:
      Stream() { StartSendInitialMetadata(); }
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override {}
    };
    streams_.push_back(new Stream());
    return streams_.back();
  }

 private:
  std::vector<grpc::ServerBidiReactor<v1::AgentMessage, v1::ServiceMessage>*> streams_;
};

class StubbornTest : public ClientTest {
 protected:
  StubbornTest() : listener_(*StartGrpcListener("127.0.0.1:0", &service_)) {
    Connect(absl::StrCat("127.0.0.1:", listener_.port));
    EXPECT_TRUE(Until([this] { return opened_.size() == 1; }));
  }
  ~StubbornTest() override {
    client_.reset();
    listener_.server->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
  }
  StubbornService service_;
  GrpcListener listener_;
};

TEST_F(StubbornTest, FinishEndsWithoutTheService) {
  const Instant begin = loop_->Now();
  client_->Finish();
  ASSERT_TRUE(Until([this] { return !closed_.empty(); }));
  EXPECT_LT(loop_->Now() - begin, absl::Seconds(3) * Slow());
  EXPECT_TRUE(absl::IsDeadlineExceeded(closed_[0].status)) << closed_[0].status;
  EXPECT_FALSE(closed_[0].will_retry);
}

TEST_F(StubbornTest, WhatWaitsHasABound) {
  AgentMessage large = SampleJoin("job7", "a");
  std::get<Join>(large.body).job.description = std::string(4000, 'x');
  int taken = 0;
  while (taken < 100'000 && client_->Send(large)) ++taken;
  EXPECT_GE(taken, 1024);
  EXPECT_LT(taken, 100'000);
  ASSERT_TRUE(Until([this] { return !closed_.empty(); }));
  EXPECT_THAT(Text(0), HasSubstr("does not read"));
  EXPECT_TRUE(closed_[0].will_retry);
  EXPECT_TRUE(Until([this] { return opened_.size() == 2; }));
}

// Answers each stream with one message.
class OneMessageService final : public v1::Rendezvous::Service {
 public:
  grpc::Status Attend(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::ServiceMessage, v1::AgentMessage>* stream) override {
    stream->Write(message);
    v1::AgentMessage ignored;
    while (stream->Read(&ignored)) {
    }
    return grpc::Status::OK;
  }
  v1::ServiceMessage message;
};

TEST_F(ClientTest, AServiceThatSpeaksAnotherProtocolOrNonsense) {
  OneMessageService service;
  const auto listener = StartGrpcListener("127.0.0.1:0", &service);
  ASSERT_TRUE(listener.ok());
  service.message.mutable_welcome()->set_protocol_major(2);
  Connect(absl::StrCat("127.0.0.1:", listener->port));
  ASSERT_TRUE(Until([this] { return !closed_.empty(); }));
  EXPECT_TRUE(absl::IsFailedPrecondition(closed_[0].status)) << closed_[0].status;
  EXPECT_THAT(Text(0), HasSubstr("upgrade ddprun on this node"));
  EXPECT_FALSE(closed_[0].will_retry);

  closed_.clear();
  service.message.mutable_stop_workers();  // of generation 0
  Connect(absl::StrCat("127.0.0.1:", listener->port));
  ASSERT_TRUE(Until([this] { return !closed_.empty(); }));
  EXPECT_TRUE(absl::IsInvalidArgument(closed_[0].status)) << closed_[0].status;
  EXPECT_FALSE(closed_[0].will_retry);
  EXPECT_TRUE(messages_.empty());
  client_.reset();
}

// A stream that opens and breaks at once, again and again, does not make a busy loop.
class BreakingService final : public v1::Rendezvous::Service {
 public:
  grpc::Status Attend(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::ServiceMessage, v1::AgentMessage>* stream) override {
    stream->SendInitialMetadata();
    return {grpc::StatusCode::UNAVAILABLE, "not now"};
  }
};

TEST_F(ClientTest, StreamsThatBreakAtOnceAreOpenedAtGrowingDistances) {
  BreakingService service;
  const auto listener = StartGrpcListener("127.0.0.1:0", &service);
  ASSERT_TRUE(listener.ok());
  Connect(absl::StrCat("127.0.0.1:", listener->port));
  ASSERT_TRUE(Until([this] { return closed_.size() == 4; }));
  EXPECT_GE(closed_[3].at - closed_[0].at, absl::Milliseconds(140));  // 0.8 × (25 + 50 + 100)
  EXPECT_EQ(Text(0), "not now");
}

// ------------------------------------------------------------- its end

TEST_F(ClientTest, MayEndInEachOfItsCallbacks) {
  Serve();
  enum { kOnOpen, kOnMessage, kOnClosed };
  for (const int where : {kOnOpen, kOnMessage, kOnClosed}) {
    std::unique_ptr<RendezvousClient> client;
    bool ended = false;
    const auto end_if = [&](int here) {
      if (where != here) return;
      client.reset();
      ended = true;
    };
    // Each agent has an id of its own: the service may read the next one's Join before the end of
    // this one's stream, and would refuse a second agent of a node with a live agent.
    AgentMessage join = SampleJoin("job7", absl::StrCat("node", where));
    join.incarnation = Incarnation(100 + static_cast<uint64_t>(where));
    client = RendezvousClient::Start(
        loop_.get(), {.target = where == kOnClosed ? "127.0.0.1:1" : target()},
        {.on_stream_open =
             [&] {
               client->Send(join);
               end_if(kOnOpen);
             },
         .on_message = [&](const ServiceMessage&) { end_if(kOnMessage); },
         .on_stream_closed = [&](const absl::Status&, bool) { end_if(kOnClosed); }});
    EXPECT_TRUE(Until([&ended] { return ended; })) << where;
  }
}

// At any moment of its life, and its loop right after it. Of each moment the shortest of a few ends
// counts: on a busy machine one takes the time for which another process has the processor.
TEST(ClientEnd, TakesNoTimeAndLeavesNothingBehind) {
  Rng rng(7);
  auto server_loop = *EventLoop::Create();
  EventLog events;
  auto server = RendezvousServer::Start(server_loop.get(), &events, {.listen = "127.0.0.1:0"});
  ASSERT_TRUE(server.ok());
  const std::string live = absl::StrCat("127.0.0.1:", (*server)->port());
  const auto time_to_end = [&](const std::string& to, absl::Duration age) {
    auto loop = *EventLoop::Create();
    auto client = RendezvousClient::Start(loop.get(), {.target = to},
                                          {.on_stream_open = [] {},
                                           .on_message = [](const ServiceMessage&) {},
                                           .on_stream_closed = [](const absl::Status&, bool) {}});
    const Instant until = loop->Now() + age;
    while (loop->Now() < until) {
      uv_run(loop->uv(), UV_RUN_NOWAIT);
      uv_run(server_loop->uv(), UV_RUN_NOWAIT);
    }
    const Instant begin = loop->Now();
    client.reset();
    loop.reset();
    return server_loop->Now() - begin;
  };
  constexpr absl::Duration kNoTime = absl::Milliseconds(50);
  for (int i = 0; i < 200; ++i) {
    const std::string to = i % 4 == 0 ? "127.0.0.1:1" : live;
    const absl::Duration age = absl::Microseconds(static_cast<int64_t>(rng.Below(4000)));
    EXPECT_LT(Shortest(kNoTime, [&] { return time_to_end(to, age); }), kNoTime) << to << " " << age;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
