#include "rendezvous/core/job_record.h"

#include <gtest/gtest.h>

#include <set>

#include "base/version.h"
#include "rendezvous/core/job/state_machine.h"

namespace ddprun::rendezvous::job_record_test {
namespace {

constexpr Instant kStart;

// A machine that keeps its record, with a job of one node that runs.
class RecordTest : public ::testing::Test {
 protected:
  RecordTest() : machine_(Term(7), "", /*keeps=*/true) {
    join_.run_id = "job7";
    join_.node_id = NodeId("a");
    join_.incarnation = Incarnation(5);
    join_.stream = StreamNumber(1);
    Join join{.protocol_major = kProtocolMajor};
    join.job.run_id = "job7";
    join.job.max_restarts = 3;
    join.node.hostname = "a";
    join_.body = join;
    machine_.Step(kStart, MessageReceived{StreamKey(1), join_});
    Kept(kStart);
  }

  JobRecord Kept(Instant now) {
    JobRecord record = machine_.TakeRecord(now);
    machine_.Step(now, PersistDone{absl::OkStatus()});
    return record;
  }
  void Report(Instant now, uint64_t sequence, decltype(AgentMessage::body) body) {
    AgentMessage message = join_;
    message.term = Term(7);
    message.generation = Generation(1);
    message.sequence = sequence;
    message.body = std::move(body);
    machine_.Step(now, MessageReceived{StreamKey(1), message});
  }

  AgentMessage join_;
  StateMachine machine_;
};

TEST_F(RecordTest, AJobComesBackAsItWas) {
  const Instant now = kStart + absl::Seconds(5);
  JobRecord record = Kept(now);
  record.life = 1;
  StateMachine other(now, record, absl::ZeroDuration(), "");
  EXPECT_EQ(other.TakeRecord(now), record);
}

// If another agent has the service now, the node that had it was lost together with it.
TEST_F(RecordTest, TheFormerHostIsKnown) {
  JobRecord record = Kept(kStart);
  record.nodes.push_back({.id = NodeId("host"), .incarnation = Incarnation(6)});
  record.nodes.back().info.hosts_service = true;
  MarkFormerHost(Incarnation(6), record);
  EXPECT_EQ(record.vanished, NodeId());
  MarkFormerHost(Incarnation(7), record);
  EXPECT_EQ(record.vanished, NodeId("host"));
}

// The time between two services counts, if it is known.
TEST_F(RecordTest, TimesGoOn) {
  const Instant now = kStart + absl::Seconds(5);
  JobRecord record = Kept(now);
  record.life = 1;
  JobRecord later = record;
  Age(absl::Seconds(3), later);
  EXPECT_EQ(later.round->age, absl::Seconds(8));
  EXPECT_EQ(later.ledger.age, absl::Seconds(8));
  StateMachine other(now, record, absl::Seconds(3), "");
  EXPECT_EQ(other.TakeRecord(now), later);
  EXPECT_EQ(other.View(now).age, absl::Seconds(8));
}

TEST_F(RecordTest, WhatANodeReportsIsSettledWhenItsRoundIs) {
  Report(kStart, 1, WorkersStarted{});
  EXPECT_EQ(Kept(kStart).nodes[0].settled, 1U);
  Report(kStart, 2, WorkerFailed{});
  Report(kStart, 3, HangReport{});
  EXPECT_EQ(Kept(kStart).nodes[0].settled, 1U);
  Report(kStart, 4, GroupStopped{.master_port = 5000});
  EXPECT_EQ(machine_.TakeRecord(kStart).generation, Generation(2));
  EXPECT_EQ(Kept(kStart).nodes[0].settled, 4U);
}

// A long list of what an agent has to keep is cut short by a record.
TEST_F(RecordTest, ManyEventsAreRecorded) {
  uint64_t records = 0;
  for (uint64_t sequence = 1; sequence <= 640; ++sequence) {
    AgentMessage message = join_;
    message.term = Term(7);
    message.generation = Generation(1);
    message.sequence = sequence;
    message.body = HangReport{};
    for (const Effect& effect : machine_.Step(kStart, MessageReceived{StreamKey(1), message})) {
      if (!std::holds_alternative<Persist>(effect)) continue;
      ++records;
      EXPECT_EQ(Kept(kStart).nodes[0].settled, sequence);
    }
  }
  EXPECT_EQ(records, 10U);
}

TEST_F(RecordTest, NoNonceOfAProbeIsUsedTwice) {
  JobRecord record = Kept(kStart);
  std::set<uint64_t> nonces;
  for (uint64_t life = 1; life <= 3; ++life) {
    record.life = life;
    StateMachine other(kStart, record, absl::ZeroDuration(), "");
    AgentMessage again = join_;
    again.term = Term(7);
    again.stream = StreamNumber(1 + life);
    again.generation = Generation(1);
    std::get<Join>(again.body).group_state = GroupState::kRunning;
    other.Step(kStart, MessageReceived{StreamKey(1), again});
    for (Instant now = kStart; nonces.size() < 3 * life;) {
      now = other.NextDeadline();
      for (const Effect& effect : other.Step(now, TimerDue{})) {
        const Send* send = std::get_if<Send>(&effect);
        const Probe* probe = send == nullptr ? nullptr : std::get_if<Probe>(&*send->message);
        if (probe == nullptr) continue;
        EXPECT_TRUE(nonces.insert(probe->nonce).second);
      }
    }
  }
}

}  // namespace
}  // namespace ddprun::rendezvous::job_record_test
