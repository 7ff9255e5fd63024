#include "launcher/core/supervisor/service_stream.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;
using rendezvous::GroupState;
using rendezvous::StreamNumber;
using rendezvous::Term;
using rendezvous::Welcome;

constexpr Instant kNow = Instant::FromNanoseconds(1'000'000'000);

ServiceStream MakeStream() {
  return ServiceStream({.node_id = rendezvous::NodeId("a"),
                        .incarnation = rendezvous::Incarnation(7),
                        .node = {.hostname = "host0"},
                        .token = "secret",
                        .protocol_major = 3},
                       {.run_id = "job"});
}

TEST(ServiceStream, BeginsWithAJoinThatSaysWhoWeAre) {
  ServiceStream stream = MakeStream();
  stream.OnEndpoint({.node_address = "10.0.0.1", .store_address = "10.0.0.1:7"});
  stream.ReserveMasterPort(4242);
  const rendezvous::AgentMessage message = stream.Open(kNow, GroupState::kRunning, Generation(2));
  EXPECT_EQ(message.run_id, "job");
  EXPECT_EQ(message.node_id, rendezvous::NodeId("a"));
  EXPECT_EQ(message.incarnation, rendezvous::Incarnation(7));
  EXPECT_EQ(message.stream, StreamNumber(1));
  EXPECT_EQ(message.term, Term());
  EXPECT_EQ(message.sequence, 0U);
  EXPECT_EQ(message.generation, Generation(2));
  const auto& join = std::get<rendezvous::Join>(message.body);
  EXPECT_EQ(join.protocol_major, 3U);
  EXPECT_EQ(join.token, "secret");
  EXPECT_EQ(join.node.address, "10.0.0.1");
  EXPECT_EQ(join.node.master_port, 4242U);
  EXPECT_EQ(join.group_state, GroupState::kRunning);
  EXPECT_EQ(stream.BrokenInvariant(), "");
}

TEST(ServiceStream, WhatWasNeverSaidCantHaveBeenHeard) {
  ServiceStream stream = MakeStream();
  stream.Open(kNow, GroupState::kIdle, Generation());
  stream.Add(Generation(1), rendezvous::WorkersStarted{});
  EXPECT_EQ(stream.OnWelcome(kNow, Welcome{.term = Term(9), .processed_sequence = 7}).size(), 1U);
  stream.OnProbe(rendezvous::Probe{.nonce = 3, .processed_sequence = 2});
  stream.Close();
  stream.Open(kNow, GroupState::kIdle, Generation());
  EXPECT_EQ(stream.OnWelcome(kNow, Welcome{.term = Term(9), .processed_sequence = 0}).size(), 1U);
}

TEST(ServiceStream, SaysHowOldTheJobIsAtLeast) {
  ServiceStream stream = MakeStream();
  Instant now = kNow;
  const auto told = [&](absl::Duration later) {
    const auto join = stream.Open(now = now + later, GroupState::kIdle, Generation());
    return std::get<rendezvous::Join>(join.body).job_age;
  };
  EXPECT_EQ(told({}), absl::ZeroDuration());
  stream.OnWelcome(now, Welcome{.term = Term(9), .job_age = absl::Seconds(10)});
  EXPECT_EQ(told(absl::Seconds(5)), absl::Seconds(15));
  stream.OnWelcome(now, Welcome{.term = Term(9), .job_age = absl::Seconds(12)});
  EXPECT_EQ(told(absl::Seconds(1)), absl::Seconds(16)) << "the service has lost some time";
  stream.OnWelcome(now, Welcome{.term = Term(10), .job_age = absl::Seconds(2)});
  EXPECT_EQ(told(absl::Seconds(1)), absl::Seconds(3)) << "another job";
}

TEST(ServiceStream, AnIdleNodeNamesNoGeneration) {
  ServiceStream stream = MakeStream();
  EXPECT_EQ(stream.Open(kNow, GroupState::kIdle, Generation(2)).generation, Generation());
}

TEST(ServiceStream, NothingButTheJoinGoesBeforeTheWelcome) {
  ServiceStream stream = MakeStream();
  stream.Open(kNow, GroupState::kIdle, Generation());
  EXPECT_FALSE(stream.Add(Generation(1), rendezvous::WorkersStarted{}).has_value());
  EXPECT_FALSE(stream.has_joined());
  const auto kept = stream.OnWelcome(kNow, Welcome{.term = Term(9)});
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].term, Term(9)) << "it was added before the term was known";
  EXPECT_EQ(kept[0].sequence, 1U);
  EXPECT_TRUE(stream.has_joined());
  const auto next = stream.Add(Generation(1), rendezvous::WorkersStarted{});
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->sequence, 2U);
  EXPECT_EQ(stream.BrokenInvariant(), "");
}

TEST(ServiceStream, SendsAgainWhatTheServiceHasNotProcessed) {
  ServiceStream stream = MakeStream();
  stream.Open(kNow, GroupState::kIdle, Generation());
  stream.OnWelcome(kNow, Welcome{.term = Term(9)});
  for (int i = 0; i < 3; ++i) stream.Add(Generation(1), rendezvous::WorkersStarted{});
  stream.OnProbe({.nonce = 5, .processed_sequence = 1});
  stream.Close();
  EXPECT_FALSE(stream.is_open());
  EXPECT_TRUE(stream.has_joined()) << "that doesn't end with a stream";
  EXPECT_EQ(stream.Open(kNow, GroupState::kRunning, Generation(1)).stream, StreamNumber(2));
  const auto again = stream.OnWelcome(kNow, Welcome{.term = Term(9), .processed_sequence = 2});
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].sequence, 3U);
  EXPECT_EQ(again[0].stream, StreamNumber(2));
  EXPECT_EQ(stream.BrokenInvariant(), "");
}

TEST(ServiceStream, AnswersAProbeWithItsNonce) {
  ServiceStream stream = MakeStream();
  stream.Open(kNow, GroupState::kIdle, Generation());
  stream.OnWelcome(kNow, Welcome{.term = Term(9)});
  const rendezvous::AgentMessage renewal = stream.OnProbe({.nonce = 5});
  EXPECT_EQ(std::get<rendezvous::Renewal>(renewal.body).nonce, 5U);
  EXPECT_EQ(renewal.sequence, 0U);
}

TEST(ServiceStreamDeathTest, AClosedStreamIsNotWelcomed) {
  ServiceStream stream = MakeStream();
  EXPECT_DEATH(stream.OnWelcome(kNow, Welcome{.term = Term(9)}), "only an open stream is welcomed");
}

TEST(ServiceStream, AWelcomeWithoutATermBreaksAnInvariant) {
  ServiceStream stream = MakeStream();
  stream.Open(kNow, GroupState::kIdle, Generation());
  stream.OnWelcome(kNow, Welcome{});
  EXPECT_EQ(stream.BrokenInvariant(), "a welcomed stream has no term");
}

}  // namespace
}  // namespace ddprun::launcher
