#include "rendezvous/server/attend_stream.h"

#include <algorithm>
#include <vector>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "rendezvous/server/service.h"
#include "rendezvous/wire/grpc_listener.h"
#include "tests/server/rendezvous_fixture.h"

// One stream of the service's side with an owner of our own: what happens to peers that are slow.
namespace ddprun::rendezvous {
namespace {

class AttendStreamTest : public ::testing::Test, public Service::Owner {
 protected:
  AttendStreamTest() : loop_(*EventLoop::Create()), inbox_(LoopInbox::Create(loop_.get())) {}
  ~AttendStreamTest() override {
    inbox_->Close();
    const CallRegistry::Open open = registry_->Close();
    for (const auto& stream : open.streams) {
      stream->FinishNow(absl::UnavailableError("end of test"));
    }
    for (grpc::ServerUnaryReactor* call : open.calls) call->Finish(grpc::Status::CANCELLED);
    if (listener_.server != nullptr) listener_.server->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
    EXPECT_TRUE(registry_->WaitUntilDone(absl::Seconds(5) * Slow()));
  }

  void Serve(const StreamLimits& limits) {
    service_ = std::make_unique<Service>(loop_.get(), this, inbox_, registry_, board_, limits);
    auto listener = StartGrpcListener("127.0.0.1:0", service_.get());
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    channel_ = MakeChannel(absl::StrCat("127.0.0.1:", listener_.port));
  }
  bool Until(const std::function<bool()>& done) { return LoopUntil(loop_.get(), done); }

  void OnStreamOpen(const std::shared_ptr<AttendStream>& stream) override {
    streams_.push_back(stream);
    stream->ReadNext();
  }
  void OnStreamMessage(AttendStream* /*stream*/, absl::StatusOr<AgentMessage> message) override {
    messages_.push_back(std::move(message));  // and no next one is asked for
  }
  void OnStreamReport(AttendStream* /*stream*/, const AgentMessage& /*renewal*/,
                      const TrainingReport& /*training*/) override {}
  void OnStreamSilent(AttendStream* stream) override {
    stream->Close(absl::DeadlineExceededError("silent"));
  }
  void OnStreamEnded(AttendStream* stream) override {
    ++ended_;
    stream->Close(absl::OkStatus());
  }
  void OnStreamDone(AttendStream* /*stream*/) override { ++done_; }
  bool MayRead(const std::string& /*token*/, const std::string& /*peer*/) const override {
    return true;
  }
  bool IsTrusted(const std::string& /*token*/, const std::string& /*peer*/) const override {
    return true;
  }
  absl::StatusOr<StatusBoard::Snapshot> OnGetStatus(const v1::GetStatusRequest& /*request*/,
                                                    const std::string& /*peer*/) override {
    return std::make_shared<v1::GetStatusReply>();
  }
  absl::Status OnStopJob(const v1::StopJobRequest& /*request*/,
                         const std::string& /*peer*/) override {
    return absl::OkStatus();
  }
  absl::Status OnDrainNode(const v1::DrainNodeRequest& /*request*/, const std::string& /*peer*/,
                           v1::DrainNodeReply* /*reply*/) override {
    return absl::OkStatus();
  }
  void OnWatchEvents(const v1::WatchEventsRequest& /*request*/, const std::string& /*peer*/,
                     const std::shared_ptr<EventWatch>& watch) override {
    watch->FinishNow(absl::OkStatus());
  }

  // Sends until the stream takes no more; returns how many it took.
  static size_t Fill(AttendStream* stream, const ServiceMessage& message) {
    size_t taken = 0;
    while (taken < 100'000 && stream->Send(message)) ++taken;
    return taken;
  }

  const std::unique_ptr<EventLoop> loop_;
  const std::shared_ptr<LoopInbox> inbox_;
  const std::shared_ptr<StatusBoard> board_ = std::make_shared<StatusBoard>();
  const std::shared_ptr<CallRegistry> registry_ = std::make_shared<CallRegistry>();
  std::unique_ptr<Service> service_;
  GrpcListener listener_;
  std::shared_ptr<grpc::Channel> channel_;
  std::vector<std::shared_ptr<AttendStream>> streams_;
  std::vector<absl::StatusOr<AgentMessage>> messages_;
  int ended_ = 0;
  int done_ = 0;
};

TEST_F(AttendStreamTest, AQueueHasABoundOfMessages) {
  Serve({.queued_messages = 256});
  RawStream agent(loop_.get(), channel_);
  ASSERT_TRUE(Until([&] { return !streams_.empty(); }));
  // The loop does not turn meanwhile, so nothing leaves the queue.
  EXPECT_EQ(Fill(streams_[0].get(), Probe{.nonce = 1}), 256U);
  ASSERT_TRUE(Until([&] { return agent.received().size() == 256; }));
  EXPECT_TRUE(streams_[0]->Send(Probe{.nonce = 2})) << "there is room again";
}

TEST_F(AttendStreamTest, AQueueHasABoundOfBytes) {
  Serve({.queued_messages = 10'000, .queued_bytes = 1U << 20});
  RawStream agent(loop_.get(), channel_);
  ASSERT_TRUE(Until([&] { return !streams_.empty(); }));
  const size_t taken = Fill(streams_[0].get(), Standby{.reason = std::string(4000, 'x')});
  EXPECT_GT(taken, 255U);
  EXPECT_LE(taken, 262U);
}

// What was queued for an agent that does not read is dropped, and it learns why once it reads.
TEST_F(AttendStreamTest, ASlowReaderIsToldWhy) {
  Serve({});
  RawStream agent(loop_.get(), channel_, /*reads=*/false);
  ASSERT_TRUE(Until([&] { return !streams_.empty() && agent.open(); }));
  const size_t taken = Fill(streams_[0].get(), Standby{.reason = std::string(4000, 'x')});
  ASSERT_LT(taken, 100'000U);
  streams_[0]->Close(absl::ResourceExhaustedError("does not read"), /*flush=*/false);
  agent.Read();
  ASSERT_TRUE(Until([&] { return agent.done(); }));
  EXPECT_TRUE(absl::IsResourceExhausted(agent.status())) << agent.status();
  EXPECT_LT(agent.received().size(), taken) << "the rest was to be dropped";
}

// The peer's flow-control window is full and stays so: the end doesn't wait for it for ever.
TEST_F(AttendStreamTest, APeerThatNeverReadsIsCutOff) {
  Serve({.queued_messages = 1'000'000, .queued_bytes = 4U << 20, .close = absl::Milliseconds(100)});
  RawStream agent(loop_.get(), channel_, /*reads=*/false);
  ASSERT_TRUE(Until([&] { return !streams_.empty() && agent.open(); }));
  Fill(streams_[0].get(), Standby{.reason = std::string(4000, 'x')});
  const Instant begin = loop_->Now();
  streams_[0]->Close(absl::OkStatus());
  ASSERT_TRUE(Until([&] { return done_ == 1; }));
  EXPECT_GE(loop_->Now() - begin, absl::Milliseconds(100));
  EXPECT_LT(loop_->Now() - begin, absl::Seconds(2) * Slow());
}

TEST_F(AttendStreamTest, AnOrderlyEndDeliversWhatWasQueued) {
  Serve({});
  RawStream agent(loop_.get(), channel_);
  ASSERT_TRUE(Until([&] { return !streams_.empty(); }));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(streams_[0]->Send(Standby{.reason = "wait"}));
  streams_[0]->Close(absl::OkStatus());
  EXPECT_TRUE(streams_[0]->Send(Probe{})) << "too late, but no error";
  streams_[0]->Close(absl::InternalError("a second end does not count"));
  ASSERT_TRUE(Until([&] { return agent.done(); }));
  EXPECT_TRUE(agent.status().ok()) << agent.status();
  EXPECT_EQ(agent.received().size(), 200U);
}

TEST_F(AttendStreamTest, AStreamWithoutAFirstMessageEnds) {
  Serve({.first_message = absl::Milliseconds(50)});
  RawStream agent(loop_.get(), channel_);
  ASSERT_TRUE(Until([&] { return agent.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(agent.status())) << agent.status();
}

TEST_F(AttendStreamTest, AStreamWithAFirstMessageMayBeSilent) {
  const absl::Duration limit = absl::Milliseconds(100) * Slow();
  Serve({.first_message = limit});
  RawStream agent(loop_.get(), channel_);
  agent.Send(SampleJoin("job7", "a"));
  bool later = false;
  Timer timer(loop_.get(), [&later] { later = true; });
  timer.Arm(loop_->Now() + 2 * limit);
  ASSERT_TRUE(Until([&] { return later; }));
  EXPECT_FALSE(agent.done());
  EXPECT_EQ(messages_.size(), 1U);
}

// A stream's message is in time if the service itself was held up until after the limit.
TEST_F(AttendStreamTest, NobodyIsSilentWhileTheServiceIsHeldUp) {
  const absl::Duration limit = absl::Milliseconds(500) * Slow();
  Serve({.first_message = limit});
  RawStream agent(loop_.get(), channel_);
  ASSERT_TRUE(Until([&] { return !streams_.empty(); }));
  const Instant free = loop_->Now() + limit + absl::Milliseconds(300);
  while (loop_->Now() < free) {
  }
  agent.Send(SampleJoin("job7", "a"));
  ASSERT_TRUE(Until([&] { return !messages_.empty() || agent.done(); }));
  EXPECT_FALSE(agent.done()) << agent.status();
}

// The next message is read only when the loop asks for it: a flood stays with the one who sends it.
TEST_F(AttendStreamTest, OneMessageIsReadAtATime) {
  Serve({});
  RawStream agent(loop_.get(), channel_);
  for (int i = 0; i < 1000; ++i) agent.Send(SampleJoin("job7", std::string(200, 'n')));
  ASSERT_TRUE(Until([&] { return messages_.size() == 1; }));
  streams_[0]->Send(Probe{});
  ASSERT_TRUE(Until([&] { return !agent.received().empty(); }));
  EXPECT_EQ(messages_.size(), 1U);
  EXPECT_GT(agent.unsent(), 100U) << "the sender's window is to fill";
  streams_[0]->ReadNext();
  ASSERT_TRUE(Until([&] { return messages_.size() == 2; }));
}

// This thread is the loop's, so the loop stands still: a fresh status doesn't need it for the jobs
// in it, neither for the first page nor for a request that names the job.
TEST_F(AttendStreamTest, AStatusThatIsNewIsReadBesideTheLoop) {
  Serve({});
  auto whole = std::make_shared<v1::GetStatusReply>();
  whole->add_jobs()->set_run_id("job7");
  board_->Put(whole, MonotonicNow() + absl::Hours(1), absl::Seconds(1));
  const auto stub = v1::Rendezvous::NewStub(channel_);
  const auto ask = [&](const std::string& run_id, absl::Duration patience) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + patience));
    v1::GetStatusRequest request;
    request.set_run_id(run_id);
    v1::GetStatusReply reply;
    const grpc::Status status = stub->GetStatus(&context, request, &reply);
    return status.ok() ? reply.jobs(0).run_id() : status.error_message();
  };
  EXPECT_EQ(ask("", absl::Seconds(20)), "job7");
  EXPECT_EQ(ask("job7", absl::Seconds(20)), "job7");
  EXPECT_EQ(ask("job8", absl::Milliseconds(300)), "Deadline Exceeded") << "the loop knows";
}

// An agent that closes its side has read all, and is only done; one that is cancelled may not have
// read all (R8).
TEST_F(AttendStreamTest, TheEndIsToldOnceAndHowItCame) {
  Serve({});
  int cancelled = 0;
  for (int i = 0; i < 20; ++i) {
    RawStream agent(loop_.get(), channel_);
    agent.Send(SampleJoin("job7", "a"));
    ASSERT_TRUE(Until([&] { return messages_.size() == static_cast<size_t>(i) + 1; }));
    streams_.back()->ReadNext();
    if (i % 2 == 0) {
      agent.HalfClose();
    } else {
      agent.Cancel();
      ++cancelled;
    }
    ASSERT_TRUE(Until([&] { return done_ == i + 1; }));
    EXPECT_EQ(ended_, cancelled);
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
