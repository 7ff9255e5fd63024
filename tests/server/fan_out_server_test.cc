#include <grpcpp/support/slice.h>

#include <vector>

#include "rendezvous/core/bounds.h"
#include "rendezvous/server/attend_stream.h"
#include "rendezvous/wire/grpc_settings.h"
#include "tests/server/rendezvous_fixture.h"

// Messages that many agents get with the same bytes.
namespace ddprun::rendezvous {
namespace {

const uint8_t* BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  DDPRUN_CHECK(buffer.Dump(&slices).ok() && slices.size() == 1, "bytes in one piece");
  return slices.front().begin();
}

SharedMessage Stop(const std::string& reason) {
  return ShareMessage(StopWorkers{.generation = Generation(1), .reason = reason});
}

TEST(EncodedMessages, OfOneMessageAllStreamsShareTheBytes) {
  EncodedMessages encoded;
  const SharedMessage message = Stop(std::string(1000, 'x'));
  const SharedMessage keeps_it = message;
  const grpc::ByteBuffer first = encoded.Encode(message);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(BytesOf(encoded.Encode(message)), BytesOf(first));
  EXPECT_EQ(encoded.count(), 1U);
  v1::ServiceMessage proto;
  ASSERT_TRUE(ParseBytes(first, &proto));
  EXPECT_EQ(proto.stop_workers().reason(), std::string(1000, 'x'));
}

TEST(EncodedMessages, ThoseThatTakeTurnsAreEncodedOnceEach) {
  EncodedMessages encoded;
  const std::vector<SharedMessage> verdicts = {Stop("whole"), Stop("cut")};
  const std::vector<SharedMessage> keeps_them = verdicts;
  for (int i = 0; i < 100; ++i) encoded.Encode(verdicts[i % 2]);
  encoded.Encode(Stop("for one alone"));
  for (int i = 0; i < 100; ++i) encoded.Encode(verdicts[i % 2]);
  EXPECT_EQ(encoded.count(), 3U);
}

TEST(EncodedMessages, WhatIsGoneIsForgotten) {
  EncodedMessages encoded;
  for (int i = 0; i < 100; ++i) {
    SharedMessage message = Stop(absl::StrCat(i));
    const SharedMessage keeps_it = message;
    v1::ServiceMessage proto;
    ASSERT_TRUE(ParseBytes(encoded.Encode(message), &proto));
    EXPECT_EQ(proto.stop_workers().reason(), absl::StrCat(i));
  }
  EXPECT_EQ(encoded.count(), 100U);
}

class FanOutServerTest : public RendezvousFixture {
 protected:
  static constexpr uint32_t kNodes = 64;

  static AgentMessage JoinOf(uint32_t node) {
    AgentMessage join = SampleJoin("job7", absl::StrCat("n", node), kNodes);
    join.incarnation = Incarnation(node + 1);
    Join& body = std::get<Join>(join.body);
    body.job.max_restarts = 0;
    body.node.hostname = absl::StrCat("host", node);
    body.node.worker_count = kFailuresMax;
    body.node.hosts_service = node == 5;
    return join;
  }
  // The report of a node; on the first one all workers have failed, and wrote much.
  static GroupStopped StoppedOf(uint32_t node) {
    GroupStopped stopped;
    for (uint32_t rank = 0; node == 0 && rank < kFailuresMax; ++rank) {
      WorkerFailure failure;
      failure.local_rank = rank;
      failure.exit_code = 1;
      failure.message = absl::StrCat("RuntimeError: ", rank);
      failure.traceback.assign(kTracebackBytesMax, 't');
      failure.stderr_tail.assign(kTextBytesMax, 'e');
      stopped.failures.push_back(failure);
    }
    return stopped;
  }
};

// R8, over the wire: 64 nodes have 512 KiB each for a verdict of more.
TEST_F(FanOutServerTest, OfALongVerdictOneNodeIsToldAllAndTheOthersWhoThatIs) {
  Serve();
  std::vector<std::unique_ptr<RawStream>> agents;
  for (uint32_t node = 0; node < kNodes; ++node) agents.push_back(JoinAs(JoinOf(node)));
  for (const auto& agent : agents) ASSERT_TRUE(UntilAssigned(*agent));
  for (uint32_t node = 0; node < kNodes; ++node) {
    agents[node]->Send(EventOf(JoinOf(node), 1, 1, StoppedOf(node)));
  }
  size_t bytes = 0;
  for (uint32_t node = 0; node < kNodes; ++node) {
    const auto told = [&] { return agents[node]->Last(&v1::ServiceMessage::has_verdict); };
    ASSERT_TRUE(Until([&] { return told() != nullptr; })) << node;
    const v1::Verdict& verdict = told()->verdict();
    const bool is_reader = node == 5;
    EXPECT_EQ(verdict.whole_on(), is_reader ? "" : "host5") << node;
    EXPECT_EQ(verdict.failures_size(), static_cast<int>(kFailuresMax)) << node;
    EXPECT_EQ(verdict.failures(0).traceback().size(), kTracebackBytesMax) << node;
    EXPECT_EQ(verdict.failures(63).texts_left_out(), !is_reader) << node;
    EXPECT_EQ(verdict.failures(63).traceback().empty(), !is_reader) << node;
    EXPECT_EQ(verdict.failures(63).message(), "RuntimeError: 63") << node;
    if (!is_reader) bytes += told()->ByteSizeLong();
  }
  EXPECT_LE(bytes, kVerdictsBytesMax);
}

}  // namespace
}  // namespace ddprun::rendezvous
