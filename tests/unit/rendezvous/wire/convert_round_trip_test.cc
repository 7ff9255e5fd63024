#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/progress_page.h"
#include "base/version.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert.h"
#include "tests/support/sample_messages.h"

namespace ddprun::rendezvous {
namespace {

// Fields that the core doesn't set: others are filled in beside it, or by the reader of the whole
// job's status (training.h); and a local rank that is 0.
const std::set<std::string> kFilledInElsewhere = {
    "ddprun.rendezvous.v1.Renewal.training", "ddprun.rendezvous.v1.NodeStatus.training",
    "ddprun.rendezvous.v1.NodeStatus.lag",   "ddprun.rendezvous.v1.WorkerStatus.behind",
    "ddprun.rendezvous.v1.WorkerStatus.lag", "ddprun.rendezvous.v1.HoldUp.local_rank"};

// Every field of the message and of those in it is set to something else than its default.
void ExpectAllFieldsSet(const google::protobuf::Message& message, const std::string& path) {
  const auto* descriptor = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    const std::string name = path + "." + field->name();
    if (kFilledInElsewhere.contains(field->full_name())) continue;
    if (field->real_containing_oneof() != nullptr && !reflection->HasField(message, field))
      continue;
    if (field->is_repeated()) {
      EXPECT_GT(reflection->FieldSize(message, field), 0) << name << " is not converted";
    } else {
      EXPECT_TRUE(reflection->HasField(message, field)) << name << " is not converted";
      if (field->message_type() != nullptr) {
        ExpectAllFieldsSet(reflection->GetMessage(message, field), name);
      }
    }
  }
}

TEST(RoundTrip, AgentMessagesComeBackWhole) {
  std::set<int> seen;
  for (const AgentMessage& message : SampleAgentMessages()) {
    v1::AgentMessage proto = ToProto(message);
    seen.insert(proto.body_case());
    const auto back = FromProto(proto);
    ASSERT_TRUE(back.ok()) << back.status() << proto.DebugString();
    EXPECT_EQ(ToProto(*back).DebugString(), proto.DebugString());
    if (proto.sequence() == 0) proto.set_sequence(1);  // 0 by its kind
    if (proto.has_group_stopped()) proto.mutable_group_stopped()->set_clean(true);
    ExpectAllFieldsSet(proto, "AgentMessage");
  }
  const auto* body = v1::AgentMessage::descriptor()->oneof_decl(0);
  for (int i = 0; i < body->field_count(); ++i) {
    EXPECT_TRUE(seen.contains(body->field(i)->number())) << body->field(i)->name();
  }
}

TEST(RoundTrip, ServiceMessagesComeBackWhole) {
  std::set<int> seen;
  for (const ServiceMessage& message : SampleServiceMessages()) {
    const v1::ServiceMessage proto = ToProto(message);
    seen.insert(proto.body_case());
    const auto back = FromProto(proto);
    ASSERT_TRUE(back.ok()) << back.status() << proto.DebugString();
    EXPECT_EQ(ToProto(*back).DebugString(), proto.DebugString());
    ExpectAllFieldsSet(proto, "ServiceMessage");
  }
  const auto* body = v1::ServiceMessage::descriptor()->oneof_decl(0);
  for (int i = 0; i < body->field_count(); ++i) {
    EXPECT_TRUE(seen.contains(body->field(i)->number())) << body->field(i)->name();
  }
}

// Adds a field that a later release may have to the message and to those in it. Returns how many.
int AddLaterFields(google::protobuf::Message* message) {
  const auto* reflection = message->GetReflection();
  reflection->MutableUnknownFields(message)->AddLengthDelimited(9000, "later");
  int added = 1;
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      added += AddLaterFields(reflection->MutableMessage(message, field));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      added += AddLaterFields(reflection->MutableRepeatedMessage(message, field, i));
    }
  }
  return added;
}

template <typename Proto>
Proto ThroughBytes(const Proto& proto) {
  Proto read;
  EXPECT_TRUE(read.ParseFromString(proto.SerializeAsString()));
  return read;
}

TEST(LaterRelease, ItsFieldsAreIgnored) {
  int added = 0;
  for (const AgentMessage& message : SampleAgentMessages()) {
    v1::AgentMessage proto = ToProto(message);
    added += AddLaterFields(&proto);
    const auto back = FromProto(ThroughBytes(proto));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(ToProto(*back).DebugString(), ToProto(message).DebugString());
  }
  for (const ServiceMessage& message : SampleServiceMessages()) {
    v1::ServiceMessage proto = ToProto(message);
    added += AddLaterFields(&proto);
    const auto back = FromProto(ThroughBytes(proto));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(ToProto(*back).DebugString(), ToProto(message).DebugString());
  }
  EXPECT_GT(added, 60);
}

TEST(LaterRelease, AMessageOfItsKindIsUnknown) {
  v1::AgentMessage agent = ToProto(SampleAgentMessages()[0]);
  agent.clear_body();
  agent.GetReflection()->MutableUnknownFields(&agent)->AddLengthDelimited(99, "later");
  for (const uint64_t sequence : {0U, 7U}) {  // as a Renewal, as an event
    agent.set_sequence(sequence);
    const auto read = FromProto(ThroughBytes(agent));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(std::holds_alternative<UnknownKind>(read->body));
    EXPECT_EQ(read->sequence, sequence);
  }
  v1::ServiceMessage service;
  service.GetReflection()->MutableUnknownFields(&service)->AddLengthDelimited(99, "later");
  const auto read = FromProto(ThroughBytes(service));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(std::holds_alternative<UnknownKind>(*read));
}

TEST(RoundTrip, ValuesSurvive) {
  const auto back = FromProto(ToProto(SampleAgentMessages()[0]));
  ASSERT_TRUE(back.ok()) << back.status();
  const auto& join = std::get<Join>(back->body);
  EXPECT_EQ(back->run_id, "job7");
  EXPECT_EQ(join.job.run_id, "job7");
  EXPECT_EQ(back->incarnation, Incarnation(7));
  EXPECT_EQ(join.job.lease, absl::Seconds(13));
  EXPECT_EQ(join.job.stop_grace, absl::Seconds(15));
  EXPECT_EQ(join.job.restart, std::get<Join>(SampleAgentMessages()[0].body).job.restart);
  EXPECT_EQ(join.node.node_rank, 0U);
  EXPECT_EQ(join.group_state, GroupState::kStopping);
  const auto failed = FromProto(ToProto(SampleAgentMessages()[3]));
  EXPECT_EQ(std::get<WorkerFailed>(failed->body).failure, SampleFailure());
  const auto assignment = FromProto(ToProto(SampleServiceMessages()[3]));
  EXPECT_EQ(std::get<Assignment>(*assignment), std::get<Assignment>(SampleServiceMessages()[3]));
}

TEST(RoundTrip, AbsentNumbersHaveTheirDefaults) {
  v1::AgentMessage proto = ToProto(SampleJoin("job7", "a"));
  v1::JobSpec* job = proto.mutable_join()->mutable_job();
  job->clear_join_timeout_ms();
  job->clear_last_call_timeout_ms();
  job->clear_lease_ms();
  job->clear_reconnect_grace_ms();
  job->clear_stop_grace_ms();
  job->clear_restart();
  proto.mutable_join()->mutable_node()->clear_role();
  const auto message = FromProto(proto);
  ASSERT_TRUE(message.ok()) << message.status();
  const auto& join = std::get<Join>(message->body);
  EXPECT_EQ(join.job.join_timeout, absl::Seconds(600));
  EXPECT_EQ(join.job.last_call_timeout, absl::Seconds(30));
  EXPECT_EQ(join.job.lease, absl::Seconds(5));
  EXPECT_EQ(join.job.reconnect_grace, absl::Milliseconds(150));
  EXPECT_EQ(join.job.stop_grace, absl::Seconds(30));
  EXPECT_EQ(join.job.restart, RestartRules{});
  EXPECT_EQ(join.node.role, "default");
  EXPECT_EQ(join.node.node_rank, std::nullopt);
}

// 0 ms would come back as the default, 30 s.
TEST(RoundTrip, NoTimeBecomesTheShortest) {
  AgentMessage message = SampleJoin("job7", "a");
  std::get<Join>(message.body).job.last_call_timeout = absl::ZeroDuration();
  std::get<Join>(message.body).job.reconnect_grace = absl::Microseconds(1500);
  const auto back = FromProto(ToProto(message));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<Join>(back->body).job.last_call_timeout, absl::Milliseconds(1));
  EXPECT_EQ(std::get<Join>(back->body).job.reconnect_grace, absl::Milliseconds(2));
}

TEST(ToProto, CutsTextsAndMakesThemValid) {
  AgentMessage message = SampleAgentMessages()[5];
  WorkerFailure failure = SampleFailure();
  failure.message = std::string(kTextBytesMax - 1, 'x') + "ßß";
  failure.stderr_tail = std::string(2 * kTextBytesMax, '\xFF') + "the end";
  failure.traceback = std::string(2 * kTracebackBytesMax, 'y');
  failure.facts.assign(2 * kFactsMax, std::string(2 * kFactBytesMax, 'z'));
  std::get<GroupStopped>(message.body).failures.assign(kFailuresMax + 5, failure);
  const v1::AgentMessage proto = ToProto(message);
  const v1::WorkerFailure& out = proto.group_stopped().failures(0);
  EXPECT_EQ(proto.group_stopped().failures_size(), static_cast<int>(kFailuresMax));
  EXPECT_LE(out.message().size(), kTextBytesMax);
  EXPECT_TRUE(out.message().ends_with("x…")) << out.message().substr(kTextBytesMax - 9);
  EXPECT_LE(out.stderr_tail().size(), kTextBytesMax);
  EXPECT_TRUE(out.stderr_tail().ends_with("the end"));
  EXPECT_EQ(out.traceback().size(), kTracebackBytesMax);
  EXPECT_EQ(out.facts_size(), static_cast<int>(kFactsMax));
  EXPECT_LE(out.facts(0).size(), kFactBytesMax);
  EXPECT_LE(proto.ByteSizeLong(), kMessageBytesMax);
  // Protobuf's parser refuses a message with a text that is no UTF-8.
  v1::AgentMessage parsed;
  ASSERT_TRUE(parsed.ParseFromString(proto.SerializeAsString()));
  EXPECT_TRUE(FromProto(parsed).ok()) << FromProto(parsed).status();
}

TEST(ToProto, WelcomeCarriesOurVersion) {
  const v1::ServiceMessage proto = ToProto(ServiceMessage(Welcome{.term = Term(1)}));
  EXPECT_EQ(proto.welcome().protocol_major(), static_cast<uint32_t>(kProtocolMajor));
  EXPECT_EQ(proto.welcome().release(), kVersion);
}

TEST(ToProto, StatusShowsTheJobAndItsNodes) {
  JobView view;
  view.spec.run_id = "job7";
  view.spec.description = "train.py";
  view.spec.max_restarts = 3;
  view.phase = "running";
  view.reason = "all nodes have joined";
  view.generation = Generation(2);
  view.restart_count = 1;
  view.restarts_charged = 1;
  view.age = absl::Minutes(2);
  view.recoveries = 2;
  view.record = "/run/ddprun/service/journal.db";
  view.record_lost = "the disk is full";
  view.spent[TimeCause::kDataWait] = absl::Milliseconds(1500);
  view.counted = view.spent;
  NodeView node = {.node_id = NodeId("a"),
                   .info = {.hostname = "host0",
                            .address = "10.0.0.1",
                            .worker_count = 4,
                            .store_address = "10.0.0.1:7000",
                            .guards = "keeper, cgroup",
                            .release = "0.1.0"},
                   .state = "running",
                   .group_rank = 0,
                   .silent = absl::Milliseconds(120),
                   .progress = {PackProgress(ProgressPhase::kTrain, 7), 0},
                   .step_time = absl::Milliseconds(20),
                   .progress_age = absl::Milliseconds(30),
                   .base_rank = 4,
                   .gpus = {{.index = 1, .utilization = 0, .memory_used = 5, .memory_total = 7},
                            {.index = 2, .memory_used = 6, .memory_total = 7},
                            {.index = 3, .lost = true}},
                   .gpus_age = absl::Milliseconds(40),
                   .warm = WarmUse{.warm_workers = 1,
                                   .cold_workers = 2,
                                   .saved = absl::Milliseconds(3),
                                   .parked_bytes = 4,
                                   .why_cold = "memory is short"},
                   .hold_ups = {{0, {.lasted = absl::Milliseconds(900), .why = "it sleeps"}}},
                   .checkpoint_bytes = 9};
  view.nodes = {node, node};
  view.nodes[1].group_rank.reset();
  view.nodes[1].silent = -absl::Seconds(1);
  view.nodes[1].progress.clear();
  view.drained = {
      {.node_id = NodeId("b"), .hostname = "host1", .address = "10.0.0.2", .reason = "disk"}};
  v1::JobStatus proto = ToProto(view);
  *proto.add_history() = ToProto(GenerationView(), Instant());
  ExpectAllFieldsSet(proto, "JobStatus");
  ExpectAllFieldsSet(proto.nodes(0), "NodeStatus");
  ExpectAllFieldsSet(proto.nodes(0).warm(), "WarmStatus");
  ExpectAllFieldsSet(proto.drained(0), "DrainedNode");
  ExpectAllFieldsSet(proto.nodes(0).workers(0), "WorkerStatus");
  EXPECT_TRUE(proto.nodes(0).gpus(0).has_utilization_percent());
  EXPECT_FALSE(proto.nodes(0).gpus(1).has_utilization_percent());
  EXPECT_EQ(proto.nodes(0).gpus(1).index(), 2U);
  EXPECT_EQ(proto.nodes(0).gpus(1).memory_used_bytes(), 6U);
  EXPECT_FALSE(proto.nodes(0).gpus(1).lost());
  EXPECT_TRUE(proto.nodes(0).gpus(2).lost());
  ASSERT_EQ(proto.ledger_size(), 1);
  EXPECT_EQ(proto.ledger(0).cause(), "data_wait");
  EXPECT_EQ(proto.ledger(0).us(), 1500000U);
  EXPECT_EQ(proto.nodes(0).workers(1).rank(), 5U);
  EXPECT_EQ(proto.nodes(0).workers(1).phase(), "unmarked");
  EXPECT_EQ(proto.nodes(1).workers_size(), 0);
  EXPECT_EQ(proto.nodes(0).silent_ms(), 120U);
  EXPECT_FALSE(proto.nodes(1).has_group_rank());
  EXPECT_EQ(proto.nodes(1).silent_ms(), 0U);
}

TEST(ToProto, ANodeHasItsCheckpointsMemory) {
  JobView view;
  view.nodes = {{.checkpoint_bytes = 9}, {}};
  EXPECT_EQ(ToProto(view).nodes(0).checkpoint_bytes(), 9U);
  EXPECT_FALSE(ToProto(view).nodes(1).has_checkpoint_bytes());
}

TEST(ToProto, AHoldUpHasLastedSinceItWasTold) {
  JobView view;
  view.nodes = {{.progress = {1, 1},
                 .progress_age = absl::Milliseconds(30),
                 .hold_ups = {{1, {.lasted = absl::Milliseconds(900), .why = "it sleeps"}}}}};
  const v1::JobStatus proto = ToProto(view);
  EXPECT_FALSE(proto.nodes(0).workers(0).has_hold_up());
  EXPECT_EQ(proto.nodes(0).workers(1).hold_up().lasted_ms(), 930U);
  EXPECT_EQ(proto.nodes(0).workers(1).hold_up().why(), "it sleeps");
  EXPECT_EQ(proto.nodes(0).workers(1).hold_up().local_rank(), 1U);
}

TEST(ToProto, StatusTellsWhatAGenerationWas) {
  const Instant began = Instant() + absl::Seconds(10);
  GenerationView view = {.generation = Generation(2),
                         .world_size = 4,
                         .nodes = 2,
                         .reason = "2 nodes came together",
                         .rule = "all_nodes",
                         .began = began,
                         .ended = began + absl::Seconds(2),
                         .end_reason = "node b was lost",
                         .first_step = 3,
                         .last_step = 9,
                         .warm = WarmStart{3, 1, absl::Milliseconds(1800)}};
  const Instant now = began + absl::Seconds(5);
  const v1::GenerationStatus ended = ToProto(view, now);
  ExpectAllFieldsSet(ended, "GenerationStatus");
  EXPECT_EQ(ended.began_ms_ago(), 5000U);
  EXPECT_EQ(ended.ended_ms_ago(), 3000U);
  view.ended = Instant::Infinite();
  EXPECT_FALSE(ToProto(view, now).has_ended_ms_ago());
}

}  // namespace
}  // namespace ddprun::rendezvous
