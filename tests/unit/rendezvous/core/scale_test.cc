#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/core/job/step_effects.h"

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

// One node runs; another joins every second, answers its probe, and is gone before it takes part.
// Returns the generations that this costs. Params: answers: else it is silent.
uint64_t GenerationsOfAFlappingNewcomer(uint32_t times, bool answers) {
  StateMachine machine(Term(7), "");
  Instant now;
  uint64_t sequence = 0;
  const auto member = [&](decltype(AgentMessage::body) body) {
    AgentMessage message = Message(0);
    message.generation = machine.View(now).generation;
    if (!std::holds_alternative<Renewal>(body)) message.sequence = ++sequence;
    message.body = std::move(body);
    return message;
  };
  const auto join = [&](uint32_t node) {
    AgentMessage message = JoinOf(node, 1);
    std::get<Join>(message.body).job.nodes_max = 2;
    return message;
  };
  // The member answers at once; what the newcomer is asked comes back as its nonce.
  std::vector<AgentMessage> answers_due;
  uint64_t nonce = 0;
  const auto step = [&](const Event& event) {
    for (const Effect& effect : machine.Step(now, event)) {
      const Send* send = std::get_if<Send>(&effect);
      if (send == nullptr) continue;
      const Probe* probe = std::get_if<Probe>(send->message.get());
      if (probe != nullptr && send->stream != StreamKey(1)) nonce = probe->nonce;
      if (send->stream != StreamKey(1)) continue;
      if (probe != nullptr) answers_due.push_back(member(Renewal{.nonce = probe->nonce}));
      if (std::holds_alternative<StopWorkers>(*send->message)) {
        answers_due.push_back(member(GroupStopped{}));
      }
    }
  };
  const auto settle = [&] {
    while (!answers_due.empty()) {
      const AgentMessage answer = answers_due.front();
      answers_due.erase(answers_due.begin());
      step(MessageReceived{StreamKey(1), answer});
    }
  };
  step(MessageReceived{StreamKey(1), join(0)});
  now = now + absl::Seconds(30);
  step(TimerDue{});
  settle();
  for (uint32_t i = 1; i <= times; ++i) {
    now = now + absl::Seconds(1);
    step(TimerDue{});
    settle();
    const StreamKey stream(i + 1);
    step(MessageReceived{stream, join(i)});
    if (answers) {
      AgentMessage renewal = Message(i);
      renewal.body = Renewal{.nonce = nonce};
      step(MessageReceived{stream, renewal});
    }
    step(StreamClosed{stream});  // before the member has stopped its workers
    settle();
    machine.CheckInvariants();
  }
  EXPECT_EQ(machine.View(now).phase, "running");
  return machine.View(now).generation.value();
}

TEST(Scale, ANewcomerThatComesAndGoesDoesNotStopTheOthers) {
  // 10 s, 20 s, 40 s, … between two of them: eight in a thousand seconds.
  EXPECT_LE(GenerationsOfAFlappingNewcomer(1000, true), 1U + 8U);
  EXPECT_EQ(GenerationsOfAFlappingNewcomer(1000, false), 1U) << "nobody ends for the silent";
}

// An unauthenticated peer that joins again and again doesn't push other events of the job out (R9).
TEST(Scale, RefusedJoinsAreNotedWithinABound) {
  StateMachine machine(Term(7), "secret");
  size_t notes = 0;
  for (uint32_t node = 0; node < 10000; ++node) {
    const Event knock = MessageReceived{StreamKey(node + 1), JoinOf(node, 2)};
    for (const Effect& effect : machine.Step(Instant(), knock)) {
      notes += std::holds_alternative<Note>(effect) ? 1 : 0;
    }
    machine.Step(Instant(), StreamClosed{StreamKey(node + 1)});
  }
  EXPECT_EQ(notes, NoteBudget::kBurst);
  EXPECT_TRUE(machine.View(Instant()).nodes.empty());
}

// A member that breaks the protocol on stream after stream doesn't push other events out either.
TEST(Scale, SoAreBrokenOffStreams) {
  StateMachine machine(Term(7), "");
  size_t refused = 0;
  for (uint64_t stream = 1; stream <= 1000; ++stream) {
    AgentMessage join = JoinOf(0, 2);
    join.stream = StreamNumber(stream);
    for (int i = 0; i < 2; ++i) {  // a second Join on a stream is one too many
      for (const Effect& effect :
           machine.Step(Instant(), MessageReceived{StreamKey(stream), join})) {
        const Note* note = std::get_if<Note>(&effect);
        refused += note != nullptr && note->event == "node_refused" ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(refused, NoteBudget::kBurst);
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
