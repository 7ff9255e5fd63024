#include "rendezvous/core/job/step_effects.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddprun::rendezvous {
namespace {

Effect ToStream(uint64_t stream, ServiceMessage message) {
  return Send{.stream = StreamKey(stream), .message = ShareMessage(std::move(message))};
}
Effect Fact(const std::string& event) { return Note{.event = event, .fields = {}}; }

// What it is, for people: "persist", "note a", "welcome 1".
std::string NameOf(const Effect& effect) {
  if (std::holds_alternative<Persist>(effect)) return "persist";
  if (const Note* note = std::get_if<Note>(&effect)) return "note " + note->event;
  const Send& send = std::get<Send>(effect);
  const std::string stream = absl::StrCat(send.stream.value());
  if (std::holds_alternative<Welcome>(*send.message)) return "welcome " + stream;
  const Probe* probe = std::get_if<Probe>(&*send.message);
  if (probe == nullptr) return "message " + stream;
  return (probe->in_order ? "question " : "probe ") + stream;
}

std::vector<std::string> Names(const std::vector<Effect>& effects) {
  std::vector<std::string> names;
  for (const Effect& effect : effects) names.push_back(NameOf(effect));
  return names;
}

std::vector<std::string> TakeAll(EffectQueue& queue) {
  std::vector<std::string> names;
  while (const auto effect = queue.Take()) names.push_back(NameOf(*effect));
  return names;
}

using List = std::vector<std::string>;

TEST(EffectQueue, KeepsTheOrder) {
  EffectQueue queue;
  EXPECT_EQ(Names(queue.Add({Fact("a"), ToStream(1, Probe{}), Fact("b")})), List());
  EXPECT_EQ(TakeAll(queue), (List{"note a", "probe 1", "note b"}));
}

TEST(EffectQueue, WhatFollowsARecordWaitsForIt) {
  EffectQueue queue(/*recorded=*/true);
  queue.Add({Persist{}, Fact("a"), ToStream(1, StopWorkers{})});
  EXPECT_EQ(TakeAll(queue), List{"persist"});
  EXPECT_TRUE(queue.writing());
  queue.Add({Fact("b")});
  EXPECT_EQ(TakeAll(queue), List());
  queue.EndWriting();
  EXPECT_EQ(TakeAll(queue), (List{"note a", "message 1", "note b"}));
  EXPECT_FALSE(queue.writing());
}

// The record is taken after the steps, so it holds what they have decided.
TEST(EffectQueue, OneRecordIsEnoughForAllThatWaitForOne) {
  EffectQueue queue(/*recorded=*/true);
  queue.Add({Persist{}, Fact("a")});
  EXPECT_EQ(TakeAll(queue), List{"persist"});
  queue.Add({Persist{}, Fact("b")});
  queue.Add({Persist{}, Fact("c")});
  queue.EndWriting();
  EXPECT_EQ(TakeAll(queue), (List{"note a", "persist"}));
  queue.EndWriting();
  EXPECT_EQ(TakeAll(queue), (List{"note b", "note c"}));
}

// Otherwise a disk that is slower than the lease would lose every node.
TEST(EffectQueue, ProbesAndWelcomesDoNotWait) {
  EffectQueue queue(/*recorded=*/true);
  queue.Add({Persist{}, Fact("a")});
  EXPECT_EQ(TakeAll(queue), List{"persist"});
  EXPECT_EQ(Names(queue.Add({Fact("b"), ToStream(1, Welcome{}), ToStream(1, Probe{}),
                             ToStream(1, Probe{.in_order = true}), ToStream(2, Standby{})})),
            (List{"welcome 1", "probe 1"}));
  queue.EndWriting();
  EXPECT_EQ(TakeAll(queue), (List{"note a", "note b", "question 1", "message 2"}));
}

TEST(EffectQueue, AlsoWhereTheRecordIsOfTheSameStep) {
  EffectQueue queue(/*recorded=*/true);
  EXPECT_EQ(Names(queue.Add({Persist{}, ToStream(1, Welcome{}), ToStream(1, Assignment{})})),
            List{"welcome 1"});
  EXPECT_EQ(TakeAll(queue), List{"persist"});
}

// An agent that heard of a term which is in no record would be sent away by the next service.
TEST(EffectQueue, BeforeTheFirstRecordNobodyIsWelcomed) {
  EffectQueue queue;
  EXPECT_EQ(Names(queue.Add({Persist{}, ToStream(1, Welcome{}), ToStream(1, Probe{})})), List());
  EXPECT_EQ(TakeAll(queue), List{"persist"});
  EXPECT_EQ(Names(queue.Add({ToStream(1, Probe{}), ToStream(2, Probe{})})), List{"probe 2"});
  EXPECT_EQ(Names(queue.EndWriting()), (List{"welcome 1", "probe 1", "probe 1"}));
  EXPECT_EQ(TakeAll(queue), List());
  queue.Add({Persist{}});
  EXPECT_EQ(TakeAll(queue), List{"persist"});
  EXPECT_EQ(Names(queue.Add({ToStream(3, Welcome{})})), List{"welcome 3"});
}

// An agent that joined while the first record was written has waited for a lease already.
TEST(EffectQueue, NorDoesAnybodyWaitForTheSecondOne) {
  EffectQueue queue;
  queue.Add({Persist{}, ToStream(1, Welcome{}), Fact("a")});
  EXPECT_EQ(TakeAll(queue), List{"persist"});
  queue.Add({Persist{}, ToStream(2, Welcome{}), Fact("b"), ToStream(2, Standby{})});
  queue.Add({ToStream(2, Probe{})});
  EXPECT_EQ(Names(queue.EndWriting()), (List{"welcome 1", "welcome 2", "probe 2"}));
  EXPECT_EQ(TakeAll(queue), (List{"note a", "persist"}));
  EXPECT_EQ(Names(queue.EndWriting()), List());
  EXPECT_EQ(TakeAll(queue), (List{"note b", "message 2"}));
}

TEST(EffectQueueDeathTest, NothingIsWrittenThatNobodyTook) {
  EffectQueue queue;
  EXPECT_DEATH(queue.EndWriting(), "no record");
}

}  // namespace
}  // namespace ddprun::rendezvous
