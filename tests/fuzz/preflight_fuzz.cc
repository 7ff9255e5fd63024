#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"
#include "tests/fuzz/fuzz_target.h"
#include "tools/preflight/check_wire.h"
#include "tools/preflight/core/link_check.h"
#include "tools/preflight/core/link_text.h"
#include "tools/preflight/datagram_exchange.h"

namespace ddprun::launcher {

// Reads the bytes as each of the texts that the nodes of a network check leave for each other, and
// as a datagram. What is understood must survive being written and read again, and a network check
// must be able to use it. Returns: whether any of it was understood. Aborts if a promise is broken.
bool ReadPreflightBytes(absl::string_view bytes);

namespace {

constexpr uint32_t kFuzzNodes = 3;

// Whatever the others claim to have seen, there is a report of it.
void JudgeMeasurements(const NodeMeasurements& measurements) {
  std::vector<NodeFacts> nodes(kFuzzNodes, {.name = "n", .told = true});
  LinkCheck check(nodes);
  while (!check.Next({}, absl::Seconds(1)).over) {
    check.Add({measurements, measurements, measurements});
  }
  const std::string text = NetworkText(check.facts(), DescribeTroubles(check.facts()), {});
  DDPRUN_CHECK(Printable(text) == text, "what others wrote could steer the terminal");
  DDPRUN_CHECK(!ReportJson(check.facts(), {}).empty(), "no JSON");
}

}  // namespace

bool ReadPreflightBytes(absl::string_view bytes) {
  bool understood = false;
  if (const auto endpoint = ReadEndpoint(bytes); endpoint.ok()) {
    understood = true;
    DDPRUN_CHECK(ReadEndpoint(EndpointJson(*endpoint)).value() == *endpoint, "another endpoint");
  }
  if (const auto table = ReadTable(bytes); table.ok()) {
    understood = true;
    DDPRUN_CHECK(ReadTable(TableJson(*table)).value() == *table, "another table");
  }
  if (const auto plan = ReadPlan(bytes, kFuzzNodes); plan.ok()) {
    understood = true;
    DDPRUN_CHECK(ReadPlan(PlanJson(*plan), kFuzzNodes).value() == *plan, "another plan");
  }
  if (const auto measurements = ReadMeasurements(bytes, kFuzzNodes); measurements.ok()) {
    understood = true;
    DDPRUN_CHECK(ReadMeasurements(MeasurementsJson(*measurements), kFuzzNodes).ok(),
                 "no measurements");
    JudgeMeasurements(*measurements);
  }
  if (const auto verdict = ReadVerdict(bytes); verdict.ok()) {
    understood = true;
    DDPRUN_CHECK(ReadVerdict(VerdictJson(*verdict)).value() == *verdict, "another verdict");
  }
  if (const auto probe = DecodeProbe(bytes); probe.has_value()) {
    understood = true;
    DDPRUN_CHECK(EncodeProbe(*probe) == bytes, "another datagram");
  }
  return understood;
}

}  // namespace ddprun::launcher

namespace ddprun::launcher {
namespace {

constexpr uint64_t kPreflightSeed = 20261122;
constexpr int kPreflightRounds = 5'000;

std::vector<std::string> PreflightTexts() {
  const ProbeEndpoint endpoint{.host = "n1", .address = "10.0.0.1", .datagrams = 7, .transfers = 8};
  const PeerMeasurement measurement{
      .peer = 2, .arrived = 199, .round_trip = absl::Microseconds(80), .rate = 1e9};
  return {EndpointJson(endpoint),
          TableJson({.token = 1, .endpoints = {endpoint, std::nullopt, endpoint}}),
          PlanJson({.datagrams = 200, .links = {{0, 1}, {1, 2}}, .rounds = {{{0, 2}}, {{1, 2}}}}),
          MeasurementsJson({.peers = {measurement, {.peer = 0, .refused = true}},
                            .work = absl::Milliseconds(1)}),
          VerdictJson({.found = true, .text = "a\n", .brief = "b\n"}),
          EncodeProbe({.kind = ProbeDatagram::Kind::kPing, .from = 3, .pass = 1, .token = 9})};
}

TEST(PreflightSmoke, WhatIsWrittenIsUnderstood) {
  for (const std::string& text : PreflightTexts()) EXPECT_TRUE(ReadPreflightBytes(text)) << text;
}

TEST(PreflightSmoke, TwoNodesMayHaveTheMostRounds) {
  ProbePlan plan{.rounds = {kMoreRoundsMax, {{.from = 0, .to = 1}}}};
  EXPECT_TRUE(ReadPlan(PlanJson(plan), 2).ok());
  plan.rounds.resize(kMoreRoundsMax + 1);
  EXPECT_FALSE(ReadPlan(PlanJson(plan), 2).ok());
}

TEST(PreflightSmoke, DamagedTexts) {
  Rng rng(kPreflightSeed);
  const std::vector<std::string> texts = PreflightTexts();
  int understood = 0;
  for (int round = 0; round < kPreflightRounds; ++round) {
    std::string bytes = texts[rng.Below(texts.size())];
    for (uint64_t i = rng.Below(4); i > 0; --i) {
      bytes[rng.Below(bytes.size())] = "{}[],:\"019-e.n\x1b\xff"[rng.Below(16)];
    }
    understood += ReadPreflightBytes(bytes) ? 1 : 0;
  }
  EXPECT_GT(understood, kPreflightRounds / 10);
  EXPECT_LT(understood, kPreflightRounds * 9 / 10);
}

TEST(PreflightSmoke, WhatCanNotBeIsRefused) {
  EXPECT_FALSE(ReadPreflightBytes(""));
  EXPECT_FALSE(ReadPlan(R"({"datagrams":1,"ways":[[0,3]],"rounds":[],"over":false})", 3).ok());
  EXPECT_FALSE(ReadPlan(R"({"datagrams":1,"ways":[[1,1]],"rounds":[],"over":false})", 3).ok());
  EXPECT_TRUE(ReadPlan(R"({"datagrams":1,"ways":[[1,2]],"rounds":[],"over":false})", 3).ok());
  EXPECT_FALSE(ReadEndpoint(R"({"host":"h","address":"","datagrams":65536,"transfers":1})").ok());
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::ReadPreflightBytes(bytes); }
