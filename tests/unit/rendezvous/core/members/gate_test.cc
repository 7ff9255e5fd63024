#include "rendezvous/core/members/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/version.h"

namespace ddprun::rendezvous::gate_test {
namespace {

using Kind = JoinDecision::Kind;
using ::testing::HasSubstr;

constexpr Term kTerm(7);
constexpr absl::Duration kLease = absl::Seconds(5);

// A gate of a job that is taken, and a roster with node "a", incarnation 1, stream 3, rank 0.
class GateTest : public ::testing::Test {
 protected:
  GateTest() : gate_(kTerm, "") {
    const AgentMessage first = Message("a", 1, 3);
    EXPECT_TRUE(gate_.Admit(JoinOf("a", 0), roster_, true));
    const Node& a = roster_.Add(first.node_id, first.incarnation, JoinOf("a", 0).node);
    roster_.Attach(a, StreamKey(1), first.stream, now_, kLease);
  }

  static AgentMessage Message(const std::string& id, uint64_t incarnation, uint64_t stream = 1) {
    AgentMessage message;
    message.run_id = "job7";
    message.node_id = NodeId(id);
    message.incarnation = Incarnation(incarnation);
    message.stream = StreamNumber(stream);
    return message;
  }
  static Join JoinOf(const std::string& id, std::optional<uint32_t> claim = std::nullopt) {
    Join join;
    join.protocol_major = kProtocolMajor;
    join.job.run_id = "job7";
    join.job.nodes_min = join.job.nodes_max = 2;
    join.node.hostname = "host" + id;
    join.node.node_rank = claim;
    return join;
  }
  JoinDecision Decide(const AgentMessage& message, const Join& join, bool unformed = true) {
    return gate_.Decide(now_, message, join, roster_, drains_, unformed, gate_.spec().lease);
  }
  std::string Refusal(const AgentMessage& message, const Join& join, bool unformed = true) {
    const JoinDecision decision = Decide(message, join, unformed);
    return decision.kind == Kind::kRefuse ? decision.refusal.ToString() : "not refused";
  }

  Instant now_;
  Gate gate_;
  Roster roster_;
  DrainList drains_;
};

TEST_F(GateTest, ANewNodeIsAdded) {
  const JoinDecision decision = Decide(Message("b", 2), JoinOf("b"));
  EXPECT_EQ(decision.kind, Kind::kAdd);
  EXPECT_EQ(decision.known, nullptr);
}

TEST_F(GateTest, TheSameAgentComesBackOnANewerStreamOnly) {
  const JoinDecision decision = Decide(Message("a", 1, 4), JoinOf("a", 0));
  EXPECT_EQ(decision.kind, Kind::kReattach);
  EXPECT_EQ(decision.known, roster_.table().FindById(NodeId("a")));
  EXPECT_THAT(Refusal(Message("a", 1, 3), JoinOf("a", 0)),
              HasSubstr("stream 3 of this agent is not newer than its last one, 3"));
}

TEST_F(GateTest, ANameIsHeldByWhoIsLiveAndLostByWhoIsSilent) {
  EXPECT_THAT(Refusal(Message("a", 2), JoinOf("a")), HasSubstr("node id 'a' is held"));
  EXPECT_THAT(Refusal(Message("a", 2), JoinOf("a", 0)), HasSubstr("node rank 0 is held by hosta"));
  now_ = now_ + absl::Seconds(3);
  const JoinDecision decision = Decide(Message("a", 2), JoinOf("a"));
  EXPECT_EQ(decision.kind, Kind::kAdd);
  EXPECT_EQ(decision.known, roster_.table().FindById(NodeId("a"))) << "it counts as lost";
}

TEST_F(GateTest, AClaimIsHeldByWhoIsLive) {
  EXPECT_THAT(Refusal(Message("b", 2), JoinOf("b", 0)), HasSubstr("node rank 0 is held by hosta"));
  EXPECT_EQ(Decide(Message("b", 2), JoinOf("b", 1)).kind, Kind::kAdd);
  now_ = now_ + absl::Seconds(3);
  EXPECT_EQ(Decide(Message("b", 2), JoinOf("b", 0)).kind, Kind::kAdd);
}

TEST_F(GateTest, AnotherJobIsRefused) {
  Join other = JoinOf("b");
  other.job.max_restarts = 9;
  EXPECT_THAT(Refusal(Message("b", 2), other), HasSubstr("held by hosta"));
  EXPECT_FALSE(gate_.Admit(other, roster_, true)) << "the job has nodes";
  Roster empty;
  EXPECT_FALSE(gate_.Admit(other, empty, false)) << "the job had a generation";
  EXPECT_TRUE(gate_.Admit(other, empty, true)) << "nobody is left of a job that never began";
  EXPECT_EQ(gate_.spec().max_restarts, 9U);
}

TEST_F(GateTest, WhoWasRefusedForGoodStaysSo) {
  const Node& a = *roster_.table().FindById(NodeId("a"));
  roster_.Close(roster_.Detach(a));
  roster_.Remove(a, {.id = a.id,
                     .stream_number = StreamNumber(3),
                     .refusal = absl::AbortedError("couldn't end its processes")});
  EXPECT_THAT(Refusal(Message("a", 1, 4), JoinOf("a")), HasSubstr("couldn't end"));
  EXPECT_EQ(Decide(Message("a", 2), JoinOf("a")).kind, Kind::kAdd) << "another agent may";
}

TEST_F(GateTest, ADrainedMachineMayNotSendAnotherAgent) {
  drains_.Add({.node_id = NodeId("a"), .hostname = "hosta", .address = "", .reason = ""});
  EXPECT_THAT(Refusal(Message("z", 2), JoinOf("a")), HasSubstr("node a was drained"));
  EXPECT_EQ(Decide(Message("a", 1, 4), JoinOf("a", 0)).kind, Kind::kReattach)
      << "it is leaving, and may have lost its stream";
}

// "0.2.0" for 1, if this is 0.1.0.
std::string ReleaseAbove(int minor) {
  const std::vector<std::string> numbers = absl::StrSplit(kVersion, '.');
  int ours = 0;
  EXPECT_TRUE(absl::SimpleAtoi(numbers[1], &ours));
  return absl::StrCat(numbers[0], ".", ours + minor, ".0");
}

TEST_F(GateTest, AReleaseOneMinorNumberAwayMayJoin) {
  Join join = JoinOf("b");
  for (const std::string& release : {std::string(), std::string(kVersion), ReleaseAbove(1)}) {
    join.node.release = release;
    EXPECT_EQ(Decide(Message("b", 2), join).kind, Kind::kAdd) << release;
  }
  join.node.release = ReleaseAbove(2);
  const JoinDecision refused = Decide(Message("b", 2), join);
  EXPECT_EQ(refused.refusal.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      refused.refusal.message(),
      absl::StrCat("hostb has ddprun ", ReleaseAbove(2),
                   ", and the rendezvous service of this job has ", kVersion,
                   ": releases in one job differ by one minor release at most; install ddprun ",
                   kVersion, " on hostb, or ", ReleaseAbove(2), " on all other nodes"));
}

// Below this release there may be no other, so the node of the older one has this one's place.
TEST_F(GateTest, AnyTwoReleasesOfAJobMayMeet) {
  Join other = JoinOf("b");
  other.node.release = ReleaseAbove(3);
  roster_.Add(NodeId("b"), Incarnation(2), other.node);
  Join join = JoinOf("c");
  join.node.release = ReleaseAbove(1);
  EXPECT_THAT(Refusal(Message("c", 3), join),
              HasSubstr(absl::StrCat("hostc has ddprun ", ReleaseAbove(1), ", and hostb has ",
                                     ReleaseAbove(3), ": releases in one job")));
  other.node.release = ReleaseAbove(2);
  roster_.Add(NodeId("d"), Incarnation(4), other.node);
  EXPECT_EQ(Decide(Message("b", 2, 2), other).kind, Kind::kReattach) << "it took part";
  join.node.release = kVersion;
  EXPECT_EQ(Decide(Message("c", 3), join).kind, Kind::kAdd)
      << "all nodes have met this service, and so its release";
}

TEST_F(GateTest, ChecksComeInTheOrderOfTheProtocol) {
  const Gate secret(kTerm, "secret");
  AgentMessage message = Message("b", 2);
  message.term = Term(8);
  Join join = JoinOf("b");
  join.protocol_major = kProtocolMajor + 1;
  join.job.nodes_min = 0;
  const auto code = [&] { return secret.CheckJoin(message, join, roster_, drains_, true).code(); };
  EXPECT_EQ(code(), absl::StatusCode::kFailedPrecondition);
  join.protocol_major = kProtocolMajor;
  EXPECT_EQ(code(), absl::StatusCode::kUnauthenticated);
  join.token = "secret";
  EXPECT_EQ(code(), absl::StatusCode::kAborted);
  message.term = Term();
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  join.job.nodes_min = 1;
  EXPECT_EQ(code(), absl::StatusCode::kOk);
  message.term = kTerm;
  EXPECT_EQ(code(), absl::StatusCode::kAborted) << "it was part of a job that is forgotten";
}

TEST_F(GateTest, AMessageIsThatOfItsStream) {
  const Node& a = *roster_.table().FindById(NodeId("a"));
  AgentMessage message = Message("a", 1, 3);
  message.body = WorkersStarted{};
  EXPECT_TRUE(gate_.CheckMessage(a, message).ok());
  message.stream = StreamNumber(4);
  EXPECT_EQ(gate_.CheckMessage(a, message).code(), absl::StatusCode::kInvalidArgument);
  message = Message("a", 1, 3);
  message.body = JoinOf("a");
  EXPECT_THAT(gate_.CheckMessage(a, message).ToString(), HasSubstr("a second Join"));
  message.body = WorkersStarted{};
  message.term = Term(8);
  EXPECT_EQ(gate_.CheckMessage(a, message).code(), absl::StatusCode::kAborted);
}

TEST_F(GateTest, TheVerdictIsForThoseWhoTookPart) {
  EXPECT_TRUE(Gate::MayHearVerdict(Message("a", 1, 4), roster_));
  EXPECT_FALSE(Gate::MayHearVerdict(Message("a", 1, 3), roster_)) << "an old stream";
  EXPECT_FALSE(Gate::MayHearVerdict(Message("a", 2, 4), roster_)) << "another agent";
  EXPECT_FALSE(Gate::MayHearVerdict(Message("b", 2), roster_));
  const Node& a = *roster_.table().FindById(NodeId("a"));
  roster_.Close(roster_.Detach(a));
  roster_.Remove(a, {.id = a.id});
  EXPECT_TRUE(Gate::MayHearVerdict(Message("a", 1, 4), roster_));
}

TEST(GateDeath, AServiceNeedsATerm) { EXPECT_DEATH(Gate(Term(), ""), "needs a term"); }

}  // namespace
}  // namespace ddprun::rendezvous::gate_test
