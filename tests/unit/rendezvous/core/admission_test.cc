#include "rendezvous/core/admission.h"

#include <gtest/gtest.h>

#include "base/version.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

AgentMessage GoodMessage() {
  AgentMessage message;
  message.run_id = "job7";
  message.node_id = NodeId("a");
  message.incarnation = Incarnation(1);
  message.stream = StreamNumber(1);
  return message;
}

Join GoodJoin() {
  Join join;
  join.protocol_major = kProtocolMajor;
  join.job.run_id = "job7";
  join.job.nodes_max = 2;
  return join;
}

TEST(Admission, ASecretIsComparedAsAWhole) {
  EXPECT_TRUE(SameSecret("secret", "secret"));
  EXPECT_TRUE(SameSecret("", ""));
  for (const char* wrong : {"", "s", "secre", "secrets", "secretsecret", "Secret", "tecres"}) {
    EXPECT_FALSE(SameSecret("secret", wrong)) << wrong;
  }
  EXPECT_FALSE(SameSecret("", "x"));
  EXPECT_FALSE(SameSecret("", std::string(1, '\0')));
  EXPECT_FALSE(SameSecret("aa", "aaaa"));
}

TEST(Admission, AServiceWithoutATokenTakesWhoHasNone) {
  Join join = GoodJoin();
  EXPECT_TRUE(CheckToken("", join).ok());
  join.token = "whatever";
  EXPECT_EQ(CheckToken("", join).code(), absl::StatusCode::kUnauthenticated)
      << "the service's node has forgotten it";
}

TEST(Admission, BoundsOfAJoin) {
  EXPECT_TRUE(CheckBounds(GoodMessage(), GoodJoin()).ok());
  struct Row {
    const char* what;
    absl::StatusCode code;
    void (*spoil)(AgentMessage&, Join&);
  };
  using Code = absl::StatusCode;
  const Row rows[] = {
      {"long run id", Code::kResourceExhausted,
       [](AgentMessage& m, Join&) { m.run_id.assign(kNameBytesMax + 1, 'x'); }},
      {"long node id", Code::kResourceExhausted,
       [](AgentMessage& m, Join&) { m.node_id = NodeId(std::string(kNameBytesMax + 1, 'x')); }},
      {"long host", Code::kResourceExhausted,
       [](AgentMessage&, Join& j) { j.node.hostname.assign(kNameBytesMax + 1, 'x'); }},
      {"no run id", Code::kInvalidArgument,
       [](AgentMessage& m, Join& j) { m.run_id = j.job.run_id = ""; }},
      {"no incarnation", Code::kInvalidArgument,
       [](AgentMessage& m, Join&) { m.incarnation = Incarnation(); }},
      {"stream 0", Code::kInvalidArgument,
       [](AgentMessage& m, Join&) { m.stream = StreamNumber(); }},
      {"no nodes", Code::kInvalidArgument, [](AgentMessage&, Join& j) { j.job.nodes_min = 0; }},
      {"min above max", Code::kInvalidArgument,
       [](AgentMessage&, Join& j) { j.job.nodes_min = 3; }},
      {"too many nodes", Code::kResourceExhausted,
       [](AgentMessage&, Join& j) { j.job.nodes_max = kNodesMax + 1; }},
      {"too many workers", Code::kResourceExhausted,
       [](AgentMessage&, Join& j) { j.node.worker_count = kWorkersPerNodeMax + 1; }},
      {"claim beyond", Code::kInvalidArgument,
       [](AgentMessage&, Join& j) { j.node.node_rank = 2; }},
      {"no lease", Code::kInvalidArgument,
       [](AgentMessage&, Join& j) { j.job.lease = absl::ZeroDuration(); }},
      {"endless lease", Code::kInvalidArgument,
       [](AgentMessage&, Join& j) { j.job.lease = absl::InfiniteDuration(); }},
      {"negative grace", Code::kInvalidArgument,
       [](AgentMessage&, Join& j) { j.job.stop_grace = absl::Seconds(-1); }},
  };
  for (const Row& row : rows) {
    AgentMessage message = GoodMessage();
    Join join = GoodJoin();
    row.spoil(message, join);
    EXPECT_EQ(CheckBounds(message, join).code(), row.code) << row.what;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
