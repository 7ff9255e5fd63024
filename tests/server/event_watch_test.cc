#include <atomic>
#include <mutex>
#include <thread>

#include "rendezvous/client/control_client.h"
#include "tests/server/rendezvous_fixture.h"

// Events and drains over the wire.
namespace ddprun::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WatchTest : public RendezvousFixture {
 protected:
  ~WatchTest() override {
    server_.reset();
    for (std::thread& thread : threads_) thread.join();
  }

  // What a watcher beside the loop has seen.
  struct Watcher {
    std::mutex mutex;
    std::vector<std::string> events;
    std::atomic<bool> done = false;
    absl::Status status;

    std::vector<std::string> seen() {
      const std::lock_guard lock(mutex);
      return events;
    }
  };

  std::shared_ptr<Watcher> Watch(const std::string& run_id, uint64_t after, bool follow) {
    auto watcher = std::make_shared<Watcher>();
    threads_.emplace_back([this, watcher, target = target(), run_id, after, follow] {
      v1::WatchEventsRequest request;
      request.set_run_id(run_id);
      request.set_after(after);
      request.set_follow(follow);
      watcher->status =
          WatchEvents(target, request, absl::Seconds(30),
                      [&](const std::string& /*run_id*/, const v1::JobEvent& event) {
                        const std::lock_guard lock(watcher->mutex);
                        watcher->events.push_back(absl::StrCat(event.number(), " ", event.event()));
                        Wake();
                        return true;
                      });
      watcher->done = true;
      Wake();
    });
    return watcher;
  }
  ::testing::AssertionResult UntilWatched(Watcher& watcher) {
    return Until([&watcher] { return watcher.done.load(); });
  }

  // Has Until() look again. Threads: any.
  void Wake() {
    loop_->Post([] {});
  }

  absl::StatusOr<v1::DrainNodeReply> Drain(const std::string& node, const std::string& token = "",
                                           bool undo = false) {
    v1::DrainNodeRequest request;
    request.set_node(node);
    request.set_reason("disk");
    request.set_token(token);
    request.set_undo(undo);
    absl::StatusOr<v1::DrainNodeReply> reply = absl::UnknownError("no answer");
    std::atomic<bool> done = false;
    std::thread thread([&] {
      reply = RequestDrain(target(), request, absl::Seconds(30));
      done = true;
      Wake();
    });
    EXPECT_TRUE(Until([&done] { return done.load(); }));
    thread.join();
    return reply;
  }

  std::vector<std::thread> threads_;
};

TEST_F(WatchTest, WhatHappenedAndWhatComesUntilTheEnd) {
  Serve();
  auto agent = JoinAs(SampleJoin("job7", "a"));
  ASSERT_TRUE(UntilAssigned(*agent));
  const auto once = Watch("", 0, /*follow=*/false);
  ASSERT_TRUE(UntilWatched(*once));
  EXPECT_TRUE(once->status.ok()) << once->status;
  EXPECT_THAT(once->seen(), ElementsAre("1 node_joined", "2 generation"));
  const auto follower = Watch("job7", 1, /*follow=*/true);
  ASSERT_TRUE(Until([&] { return follower->seen().size() == 1; }));
  agent->Send(EventOf(SampleJoin("job7", "a"), 1, 1, GroupSucceeded{}));
  ASSERT_TRUE(Until([&] { return agent->Last(&v1::ServiceMessage::has_verdict) != nullptr; }));
  agent->HalfClose();
  ASSERT_TRUE(UntilWatched(*follower));
  EXPECT_TRUE(follower->status.ok()) << follower->status;
  EXPECT_THAT(follower->seen(), ElementsAre("2 generation", "3 verdict", "4 ledger"));
}

TEST_F(WatchTest, OfNoJob) {
  Serve();
  const auto watcher = Watch("job8", 0, /*follow=*/true);
  ASSERT_TRUE(UntilWatched(*watcher));
  EXPECT_TRUE(absl::IsNotFound(watcher->status)) << watcher->status;
}

TEST_F(WatchTest, TheEndOfTheServiceIsAnError) {
  Serve();
  auto agent = JoinAs(SampleJoin("job7", "a"));
  ASSERT_TRUE(UntilAssigned(*agent));
  const auto follower = Watch("job7", 0, /*follow=*/true);
  ASSERT_TRUE(Until([&] { return follower->seen().size() == 2; }));
  server_->Shutdown();
  ASSERT_TRUE(UntilWatched(*follower));
  EXPECT_TRUE(absl::IsUnavailable(follower->status)) << follower->status;
}

TEST_F(WatchTest, ADrainReachesItsNodeAndNobodyWithoutTheToken) {
  Serve({.token = "geheim"});
  AgentMessage join = SampleJoin("job7", "a");
  std::get<Join>(join.body).token = "geheim";
  auto agent = JoinAs(join);
  ASSERT_TRUE(UntilAssigned(*agent));
  EXPECT_TRUE(absl::IsUnauthenticated(Drain("a", "falsch").status()));
  EXPECT_EQ(server_->refusals().at("drain_without_token"), 1U);
  EXPECT_TRUE(absl::IsNotFound(Drain("nobody", "geheim").status()));
  const auto reply = Drain("host-a", "geheim");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->node_id(), "a");
  EXPECT_EQ(reply->after(), 2U);
  EXPECT_THAT(reply->text(), HasSubstr("node a on host-a leaves; 0 nodes are left of at least 1"));
  ASSERT_TRUE(Until([&] { return agent->Last(&v1::ServiceMessage::has_drain) != nullptr; }));
  EXPECT_EQ(agent->Last(&v1::ServiceMessage::has_drain)->drain().reason(), "disk");
  EXPECT_EQ(Status().jobs(0).nodes(0).state(), "draining");
  EXPECT_EQ(Status().jobs(0).drained(0).node_id(), "a");
  EXPECT_TRUE(Drain("a", "geheim", /*undo=*/true).ok());
  EXPECT_EQ(Status().jobs(0).drained_size(), 0);
}

TEST_F(WatchTest, TheNodeOfTheServiceIsNotDrained) {
  Serve();
  AgentMessage join = SampleJoin("job7", "a");
  std::get<Join>(join.body).node.hosts_service = true;
  auto agent = JoinAs(join);
  ASSERT_TRUE(UntilAssigned(*agent));
  const absl::Status status = Drain("a").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("ddprun stop"));
}

}  // namespace
}  // namespace ddprun::rendezvous
