#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/failures/failure_list.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/wire/convert.h"
#include "tests/support/sample_messages.h"

// What the service sends to a job of many nodes, in bytes on the wire and in messages that are
// made.
namespace ddprun::rendezvous {
namespace {

constexpr uint32_t kMany = 4096;
constexpr uint32_t kLongFailures = 64;

WorkerFailure LongFailure(uint32_t local_rank) {
  WorkerFailure failure;
  failure.local_rank = local_rank;
  failure.exit_code = 1;
  failure.message = absl::StrCat("RuntimeError: ", std::string(kTextBytesMax - 100, 'm'));
  failure.traceback.assign(kTracebackBytesMax, 't');
  failure.stderr_tail.assign(kTextBytesMax, 'e');
  return failure;
}

// What a job was sent, by kind of message.
struct Sent {
  std::vector<SharedMessage> assignments;
  std::vector<SharedMessage> stops;
  std::vector<SharedMessage> verdicts;
};

// A job whose first node fails with 64 long failures, which ends it. Params: nodes: of 64 workers.
Sent EndOf(uint32_t nodes, size_t longest_reason = 0) {
  StateMachine machine(Term(7), "");
  Sent sent;
  const auto step = [&](uint32_t node, const AgentMessage& message) {
    for (const Effect& effect :
         machine.Step(Instant(), MessageReceived{StreamKey(node + 1), message})) {
      const Send* send = std::get_if<Send>(&effect);
      if (send == nullptr) continue;
      if (std::holds_alternative<Assignment>(*send->message))
        sent.assignments.push_back(send->message);
      if (std::holds_alternative<StopWorkers>(*send->message)) sent.stops.push_back(send->message);
      if (std::holds_alternative<Verdict>(*send->message)) sent.verdicts.push_back(send->message);
    }
  };
  const auto join = [&](uint32_t node) {
    AgentMessage message = SampleJoin("job7", absl::StrCat("node", 10'000 + node), nodes);
    message.incarnation = Incarnation(node + 1);
    Join& body = std::get<Join>(message.body);
    body.job.max_restarts = 0;
    body.node.hostname = absl::StrCat("host", 10'000 + node);
    body.node.worker_count = kLongFailures;
    body.node.hosts_service = node == 3;
    return message;
  };
  for (uint32_t node = 0; node < nodes; ++node) step(node, join(node));
  const auto report = [&](uint32_t node, uint64_t sequence, decltype(AgentMessage::body) body) {
    AgentMessage message = join(node);
    message.generation = Generation(1);
    message.sequence = sequence;
    message.body = std::move(body);
    step(node, message);
  };
  WorkerFailure first = LongFailure(0);
  first.start_error.assign(longest_reason, 'x');
  report(0, 1, WorkerFailed{first});
  for (uint32_t node = 0; node < nodes; ++node) {
    GroupStopped stopped;
    for (uint32_t i = 0; node == 0 && i < kLongFailures; ++i) {
      stopped.failures.push_back(LongFailure(i));
    }
    report(node, node == 0 ? 2 : 1, stopped);
  }
  return sent;
}

size_t WireBytes(const SharedMessage& message) { return ToProto(*message).ByteSizeLong(); }

size_t LongestAssignment(const Sent& sent) {
  size_t longest = 0;
  for (const SharedMessage& each : sent.assignments) longest = std::max(longest, WireBytes(each));
  return longest;
}

// Issue 16: 30.9 MB for 4,096 nodes, when each assignment named 128 others.
TEST(FanOut, AnAssignmentIsNoLongerForManyNodesThanForFew) {
  const Sent few = EndOf(16);
  const Sent many = EndOf(kMany);
  ASSERT_EQ(few.assignments.size(), 16U);
  ASSERT_EQ(many.assignments.size(), kMany);
  // Numbers have a few digits more.
  EXPECT_LE(LongestAssignment(many), LongestAssignment(few) + 32);
  EXPECT_LE(LongestAssignment(many), 200U);
}

// Issue 16: 5.1 GB for 4,096 nodes and 64 long failures, when each node got all of them.
TEST(FanOut, AVerdictToManyNodesIsMadeTwiceAndBounded) {
  const Sent sent = EndOf(kMany);
  ASSERT_EQ(sent.verdicts.size(), kMany);
  size_t bytes = 0;
  size_t whole = 0;
  std::set<const ServiceMessage*> made;
  for (const SharedMessage& message : sent.verdicts) {
    made.insert(message.get());
    const Verdict& verdict = std::get<Verdict>(*message);
    if (verdict.failures_left_out == 0) {
      ++whole;
      EXPECT_GT(WireBytes(message), size_t{1} << 20);
      EXPECT_EQ(verdict.failures.size(), kLongFailures);
      continue;
    }
    EXPECT_EQ(verdict.whole_on, "host10003");
    bytes += BytesOnWire(verdict);
  }
  EXPECT_EQ(made.size(), 2U);
  EXPECT_EQ(whole, 1U) << "the service's node";
  EXPECT_LE(bytes, kVerdictsBytesMax);
  for (const ServiceMessage* message : made) {
    EXPECT_LE(ToProto(*message).ByteSizeLong(), BytesOnWire(std::get<Verdict>(*message)))
        << "the core counts too little";
  }
}

TEST(FanOut, AVerdictToFewNodesIsWholeAndMadeOnce) {
  const Sent sent = EndOf(16);
  ASSERT_EQ(sent.verdicts.size(), 16U);
  for (const SharedMessage& message : sent.verdicts) EXPECT_EQ(message, sent.verdicts.front());
  EXPECT_EQ(std::get<Verdict>(*sent.verdicts.front()).failures.size(), kLongFailures);
}

TEST(FanOut, WhatAllAreToldAlikeIsMadeOnce) {
  const Sent sent = EndOf(kMany, kTextBytesMax);
  ASSERT_EQ(sent.stops.size(), kMany);
  for (const SharedMessage& message : sent.stops) EXPECT_EQ(message, sent.stops.front());
}

// Each text of a failure on the wire counts; a field that is added later, too.
TEST(FanOut, TheCoreCountsEveryTextOfAFailure) {
  WorkerFailure sample = SampleFailure();
  sample.facts = {"disk: full"};
  const auto reread = [](const v1::ServiceMessage& proto) {
    const auto message = FromProto(proto);
    EXPECT_TRUE(message.ok()) << message.status();
    return message.ok() ? std::get<Verdict>(*message) : Verdict();
  };
  const v1::ServiceMessage proto = ToProto(
      ServiceMessage(Verdict{.failures = {sample}, .rule = RuleName(Rule::kRestartsSpent)}));
  const size_t counted = BytesOnWire(reread(proto));
  size_t texts = 0;
  const auto* descriptor = v1::WorkerFailure::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING) continue;
    ++texts;
    v1::ServiceMessage longer = proto;
    v1::WorkerFailure* failure = longer.mutable_verdict()->mutable_failures(0);
    const std::string text(kNameBytesMax, 'x');
    if (field->is_repeated()) {
      failure->GetReflection()->SetRepeatedString(failure, field, 0, text);
    } else {
      failure->GetReflection()->SetString(failure, field, text);
    }
    // Lengths above 127 take a byte more, and are in the frame.
    const size_t grown = longer.ByteSizeLong() - proto.ByteSizeLong();
    EXPECT_GE(BytesOnWire(reread(longer)) + 8, counted + grown) << field->name();
  }
  EXPECT_EQ(texts, 8U);
}

// Every number as long as it can be.
TEST(FanOut, TheCoreCountsNoFewerBytesThanTheWireHas) {
  WorkerFailure failure = SampleFailure();
  failure.rank = failure.local_rank = failure.pid = UINT32_MAX;
  failure.exit_code = failure.signal = -1;
  failure.wall_time_ms = failure.after_first_ms = UINT64_MAX;
  failure.generation = Generation(UINT64_MAX);
  failure.traceback.assign(kTracebackBytesMax, 't');
  failure.start_error = failure.message = failure.error_file = failure.stderr_tail =
      std::string(kTextBytesMax, 'x');
  failure.facts.assign(kFactsMax, std::string(kFactBytesMax, 'f'));
  for (const size_t count : {0, 1, 64}) {
    const Verdict verdict{.outcome = Outcome::kPreempted,
                          .reason = std::string(kTextBytesMax, 'r'),
                          .failures = std::vector(count, failure),
                          .first_causes = 64,
                          .generation = Generation(UINT64_MAX),
                          .restart_count = UINT32_MAX,
                          .rule = std::string(kNameBytesMax, 'r'),
                          .failures_left_out = UINT32_MAX,
                          .causes_left_out = UINT32_MAX,
                          .whole_on = std::string(kNameBytesMax, 'h')};
    const size_t bytes = ToProto(ServiceMessage(verdict)).ByteSizeLong();
    EXPECT_LE(bytes, BytesOnWire(verdict)) << count;
    EXPECT_GE(bytes + 128 + count * 192, BytesOnWire(verdict)) << "nor many more";
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
