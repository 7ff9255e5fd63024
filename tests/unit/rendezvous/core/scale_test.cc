#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/state_machine.h"

namespace ddprun::rendezvous {
namespace {

AgentMessage Message(uint32_t node) {
  AgentMessage message;
  message.run_id = "job7";
  message.node_id = NodeId(absl::StrCat("n", node));
  message.incarnation = Incarnation(node + 1);
  message.stream = StreamNumber(1);
  return message;
}

AgentMessage JoinOf(uint32_t node, uint32_t nodes) {
  AgentMessage message = Message(node);
  Join join;
  join.protocol_major = kProtocolMajor;
  join.job.run_id = "job7";
  join.job.nodes_min = nodes;
  join.job.nodes_max = nodes;
  join.job.max_restarts = 1;
  join.node.worker_count = 8;
  message.body = join;
  return message;
}

// Messages that the service sends for one whole life of a job of `nodes` nodes: formed, failed,
// formed again.
size_t MessagesOfALife(uint32_t nodes) {
  StateMachine machine(Term(7), "");
  size_t sent = 0;
  const auto step = [&](const Event& event) {
    for (const Effect& effect : machine.Step(Instant(), event)) {
      sent += std::holds_alternative<Send>(effect) ? 1 : 0;
    }
  };
  for (uint32_t node = 0; node < nodes; ++node) {
    step(MessageReceived{StreamKey(node + 1), JoinOf(node, nodes)});
  }
  const auto report = [&](uint32_t node, uint64_t sequence, decltype(AgentMessage::body) body) {
    AgentMessage message = Message(node);
    message.generation = Generation(1);
    message.sequence = sequence;
    message.body = std::move(body);
    step(MessageReceived{StreamKey(node + 1), message});
  };
  for (uint32_t node = 0; node < nodes; ++node) report(node, 1, WorkersStarted{});
  report(0, 2, WorkerFailed{});
  for (uint32_t node = 0; node < nodes; ++node) report(node, node == 0 ? 3 : 2, GroupStopped{});
  machine.CheckInvariants();
  EXPECT_EQ(machine.View(Instant()).generation, Generation(2));
  return sent;
}

TEST(Scale, MessagesGrowLinearlyWithTheNodes) {
  const size_t small = MessagesOfALife(100);
  const size_t large = MessagesOfALife(1000);
  EXPECT_LE(large, 10 * small + 100);
}

TEST(Scale, TakesTheMostNodesAndNoMore) {
  StateMachine machine(Term(7), "");
  for (uint32_t node = 0; node < kNodesMax; ++node) {
    machine.Step(Instant(), MessageReceived{StreamKey(node + 1), JoinOf(node, 2)});
  }
  EXPECT_EQ(machine.View(Instant()).nodes.size(), kNodesMax);
  const std::vector<Effect> effects =
      machine.Step(Instant(), MessageReceived{StreamKey(kNodesMax + 1), JoinOf(kNodesMax, 2)});
  const CloseStream* close = nullptr;
  for (const Effect& effect : effects) close = std::get_if<CloseStream>(&effect);
  ASSERT_NE(close, nullptr);
  EXPECT_EQ(close->status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ddprun::rendezvous
