#include <algorithm>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/server/core/call_budget.h"
#include "rendezvous/wire/peer.h"
#include "rendezvous/wire/status_pages.h"
#include "tests/server/rendezvous_fixture.h"

// Status and stop calls, and which clients may make them.
namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

class ControlTest : public RendezvousFixture {
 protected:
  // The control client blocks, so it runs beside the loop.
  template <typename Result>
  Result Beside(const std::function<Result()>& call) {
    std::optional<Result> result;
    bool done = false;
    std::thread thread([&] {
      result = call();
      loop_->Post([&done] { done = true; });
    });
    EXPECT_TRUE(Until([&done] { return done; }));
    thread.join();
    return *std::move(result);
  }
  absl::Status Stop(const std::string& run_id, const std::string& token,
                    const std::string& reason = "enough") {
    return Beside<absl::Status>(
        [&] { return RequestStop(target(), run_id, token, reason, absl::Seconds(5)); });
  }
};

TEST_F(ControlTest, StatusOverASocket) {
  Serve();
  auto agent = JoinAs(SampleJoin("job7", "a"));
  ASSERT_TRUE(UntilAssigned(*agent));
  const auto reply = Beside<absl::StatusOr<v1::GetStatusReply>>(
      [&] { return FetchStatus(target(), "", absl::Seconds(5)); });
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->jobs_size(), 1);
  EXPECT_EQ(reply->jobs(0).description(), "train.py --lr 0.1");
  EXPECT_EQ(reply->jobs(0).nodes(0).hostname(), "host-a");
  const auto missing = Beside<absl::StatusOr<v1::GetStatusReply>>(
      [&] { return FetchStatus(target(), "job8", absl::Seconds(5)); });
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
}

// A job with more than a page of nodes, with texts as long as they may be, was shown without any
// nodes.
TEST_F(ControlTest, ALargeJobIsShownWhole) {
  const std::string text(kNameBytesMax - 10, 'n');
  const auto nodes = static_cast<uint32_t>(kPageBytes / (3 * text.size()) + 100);
  Serve();
  std::vector<std::unique_ptr<RawStream>> agents;
  const auto is_in = [](const auto& agent) {
    return agent->Last(&v1::ServiceMessage::has_welcome) != nullptr;
  };
  for (uint32_t i = 0; i < nodes; ++i) {
    AgentMessage message = SampleJoin("job7", absl::StrCat(i, text), nodes + 1);
    message.incarnation = Incarnation(i + 1);
    auto& join = std::get<Join>(message.body);
    join.node.hostname = join.node.address = join.node.role = text;
    join.job.lease = absl::Hours(1);  // these agents answer no probe
    agents.push_back(JoinAs(message));
    // All calls at once would keep the machine, which is the service's, too, busy for longer than a
    // stream may be silent.
    constexpr uint32_t kAtOnce = 64;
    if (agents.size() % kAtOnce != 0 && agents.size() < nodes) continue;
    ASSERT_TRUE(Until([&] {
      return std::all_of(agents.end() - std::min<ptrdiff_t>(kAtOnce, agents.size()), agents.end(),
                         is_in);
    })) << "after "
        << agents.size();
  }
  const auto fetch = [&] {
    return Beside<absl::StatusOr<v1::GetStatusReply>>(
        [&] { return FetchStatus(target(), "job7", absl::Seconds(60)); });
  };
  absl::StatusOr<v1::GetStatusReply> reply = fetch();
  // A machine that is busy with so many streams may not answer a connection in time.
  for (int i = 0; i < 5 && absl::IsUnavailable(reply.status()); ++i) reply = fetch();
  const Instant end = loop_->Now() + absl::Seconds(60) * Slow();
  while (reply.ok() && reply->jobs(0).nodes_size() < static_cast<int>(nodes) &&
         loop_->Now() < end) {
    reply = fetch();
  }
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_GT(reply->ByteSizeLong(), kPageBytes);
  std::set<std::string> names;
  for (const v1::NodeStatus& node : reply->jobs(0).nodes()) names.insert(node.node_id());
  EXPECT_EQ(names.size(), nodes);
}

TEST_F(ControlTest, StatusOfNobody) {
  const Instant begin = loop_->Now();
  const auto reply = FetchStatus("127.0.0.1:1", "", absl::Seconds(5) * Slow());
  EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
  EXPECT_THAT(std::string(reply.status().message()),
              HasSubstr("cannot reach the rendezvous service at 127.0.0.1:1: 127.0.0.1:1: Conn"));
  EXPECT_LT(loop_->Now() - begin, absl::Seconds(2) * Slow());
}

TEST_F(ControlTest, StopFromThisMachineNeedsNoToken) {
  Serve();
  auto agent = JoinAs(SampleJoin("job7", "a"));
  ASSERT_TRUE(UntilAssigned(*agent));
  EXPECT_TRUE(absl::IsNotFound(Stop("job8", "")));
  const absl::Status status = Stop("job7", "");
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_TRUE(Until([&] { return agent->Last(&v1::ServiceMessage::has_verdict) != nullptr; }));
  const v1::Verdict& verdict = agent->Last(&v1::ServiceMessage::has_verdict)->verdict();
  EXPECT_EQ(verdict.outcome(), v1::OUTCOME_STOPPED);
  EXPECT_EQ(verdict.reason(), "enough");
}

TEST_F(ControlTest, StopNeedsTheTokenWhereThereIsOne) {
  Serve({.token = "geheim"});
  AgentMessage join = SampleJoin("job7", "a");
  std::get<Join>(join.body).token = "geheim";
  auto agent = JoinAs(join);
  ASSERT_TRUE(UntilAssigned(*agent));
  EXPECT_TRUE(absl::IsUnauthenticated(Stop("job7", "")));
  EXPECT_TRUE(absl::IsUnauthenticated(Stop("job8", "falsch")));
  EXPECT_EQ(Status().jobs(0).phase(), "running");
  EXPECT_TRUE(Stop("job7", "geheim").ok());
  EXPECT_EQ(server_->refusals().at("stop_without_token"), 2U);
}

TEST_F(ControlTest, WhoHasNoTokenIsAnsweredSoOftenAndNoMore) {
  // However slow this machine: nothing of the allowance comes back.
  Serve({.token = "geheim", .stranger_call_every = absl::Hours(1)});
  for (int i = 0; i < CallBudget::kBurst; ++i) {
    const absl::Status status = Stop("job7", "falsch");
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << i << status;
  }
  const absl::Status last = Stop("job7", "falsch");
  EXPECT_TRUE(absl::IsResourceExhausted(last)) << last;
  EXPECT_THAT(last.ToString(), HasSubstr("ask less often, or give the token (--token_file"));
  EXPECT_TRUE(absl::IsNotFound(Stop("job7", "geheim"))) << "a client with the token isn't counted";
  AgentMessage join = SampleJoin("job7", "a");
  const auto join_over_tcp = [&] {
    auto agent = std::make_unique<RawStream>(loop_.get(), MakeChannel(target()));
    agent->Send(join);
    return agent;
  };
  const auto stranger = join_over_tcp();
  ASSERT_TRUE(UntilDone(*stranger));
  EXPECT_THAT(stranger->status().ToString(),
              HasSubstr("UNAVAILABLE: too many calls without the job's token"));
  EXPECT_EQ(server_->refusals().at("too_many_calls"), 1U);
  std::get<Join>(join.body).token = "geheim";
  const auto agent = join_over_tcp();
  EXPECT_TRUE(UntilAssigned(*agent)) << "nor is a member";
}

TEST(IsLocalPeer, KnowsThisMachine) {
  for (const char* peer :
       {"ipv4:127.0.0.1:4711", "ipv4:127.1.2.3:1", "ipv6:%5B::1%5D:4711", "ipv6:[::1]:4711",
        "ipv6:%5B::ffff:127.0.0.1%5D:1", "unix:", "unix:/tmp/x", "inproc"}) {
    EXPECT_TRUE(IsLocalPeer(peer)) << peer;
  }
  const absl::StatusOr<std::vector<std::string>> own = OwnAddresses();
  ASSERT_TRUE(own.ok()) << own.status();
  for (const std::string& address : *own) {
    const bool six = absl::StrContains(address, ':');
    const std::string peer = six ? absl::StrCat("ipv6:%5B", address, "%5D:4711")
                                 : absl::StrCat("ipv4:", address, ":4711");
    // A link-local address is the same on each link.
    EXPECT_EQ(IsLocalPeer(peer), !absl::StartsWith(address, "fe80:")) << peer;
    EXPECT_EQ(PeerHost(peer), address);
  }
}

TEST(IsOwnerPeer, IsWhoOpenedASocketOfTheOwners) {
  for (const char* peer : {"unix:", "unix:/tmp/x", "inproc"}) EXPECT_TRUE(IsOwnerPeer(peer));
  for (const char* peer : {"ipv4:127.0.0.1:1", "", "unixes"}) EXPECT_FALSE(IsOwnerPeer(peer));
  EXPECT_EQ(PeerHost("unix:/tmp/x"), "unix:/tmp/x");
}

TEST(IsLocalPeer, TakesNothingElse) {
  for (const char* peer :
       {"", "ipv4:10.0.0.1:4711", "ipv4:128.0.0.1:1", "ipv4:127.0.0.1", "ipv4:127.0.0.1.evil:1",
        "ipv6:%5Bfe80::1%5D:1", "ipv6:%5B::ffff:10.0.0.1%5D:1", "ipv6:%5B::127.0.0.1%5D:1",
        "ipv6:127.0.0.1:1", "inproc2", "vsock:1:2", "127.0.0.1:1"}) {
    EXPECT_FALSE(IsLocalPeer(peer)) << peer;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
