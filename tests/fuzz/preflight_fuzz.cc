#include "tests/fuzz/preflight_fuzz.h"

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "launcher/preflight/check_wire.h"
#include "launcher/preflight/core/link_check.h"
#include "launcher/preflight/core/link_text.h"
#include "launcher/preflight/probe_datagram.h"

namespace ddprun::launcher {
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
