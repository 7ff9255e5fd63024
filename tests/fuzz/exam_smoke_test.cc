#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "launcher/preflight/core/link_exam.h"
#include "launcher/preflight/exam_wire.h"
#include "launcher/preflight/probe_datagram.h"
#include "tests/fuzz/exam_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is exam_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr uint64_t kExamSeed = 20261122;
constexpr int kExamRounds = 5'000;

std::vector<std::string> ExamTexts() {
  const ExamSeat seat{.host = "n1", .address = "10.0.0.1", .datagrams = 7, .transfers = 8};
  const PeerLook look{.peer = 2, .arrived = 199, .round_trip = absl::Microseconds(80), .rate = 1e9};
  return {SeatJson(seat),
          TableJson({.token = 1, .seats = {seat, std::nullopt, seat}}),
          PlanJson({.datagrams = 200, .ways = {{0, 1}, {1, 2}}, .rounds = {{{0, 2}}, {{1, 2}}}}),
          LooksJson({.peers = {look, {.peer = 0, .refused = true}}, .work = absl::Milliseconds(1)}),
          VerdictJson({.found = true, .text = "a\n", .brief = "b\n"}),
          EncodeProbe({.kind = ProbeDatagram::Kind::kPing, .from = 3, .pass = 1, .token = 9})};
}

TEST(ExamSmoke, WhatIsWrittenIsUnderstood) {
  for (const std::string& text : ExamTexts()) EXPECT_TRUE(ReadExamBytes(text)) << text;
}

TEST(ExamSmoke, TwoNodesMayHaveTheMostRounds) {
  ExamPlan plan{.rounds = {kMoreRoundsMax, {{.from = 0, .to = 1}}}};
  EXPECT_TRUE(ReadPlan(PlanJson(plan), 2).ok());
  plan.rounds.resize(kMoreRoundsMax + 1);
  EXPECT_FALSE(ReadPlan(PlanJson(plan), 2).ok());
}

TEST(ExamSmoke, DamagedTexts) {
  Rng rng(kExamSeed);
  const std::vector<std::string> texts = ExamTexts();
  int understood = 0;
  for (int round = 0; round < kExamRounds; ++round) {
    std::string bytes = texts[rng.Below(texts.size())];
    for (uint64_t i = rng.Below(4); i > 0; --i) {
      bytes[rng.Below(bytes.size())] = "{}[],:\"019-e.n\x1b\xff"[rng.Below(16)];
    }
    understood += ReadExamBytes(bytes) ? 1 : 0;
  }
  EXPECT_GT(understood, kExamRounds / 10);
  EXPECT_LT(understood, kExamRounds * 9 / 10);
}

TEST(ExamSmoke, WhatCanNotBeIsRefused) {
  EXPECT_FALSE(ReadExamBytes(""));
  EXPECT_FALSE(ReadPlan(R"({"datagrams":1,"ways":[[0,3]],"rounds":[],"over":false})", 3).ok());
  EXPECT_FALSE(ReadPlan(R"({"datagrams":1,"ways":[[1,1]],"rounds":[],"over":false})", 3).ok());
  EXPECT_TRUE(ReadPlan(R"({"datagrams":1,"ways":[[1,2]],"rounds":[],"over":false})", 3).ok());
  EXPECT_FALSE(ReadSeat(R"({"host":"h","address":"","datagrams":65536,"transfers":1})").ok());
}

}  // namespace
}  // namespace ddprun::launcher
