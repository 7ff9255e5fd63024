#ifndef DDPRUN_TOOLS_PREFLIGHT_CHECK_WIRE_H_
#define DDPRUN_TOOLS_PREFLIGHT_CHECK_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tools/preflight/core/link_facts.h"

namespace ddprun::launcher {

// The messages that the nodes of a network check exchange through the store: one JSON text each.
// Readers accept any bytes. Errors of all: INVALID_ARGUMENT with the cause: another release of
// ddprun, or not a network check. Threads: any.

// Where a node can be reached.
struct ProbeEndpoint {
  std::string host;
  std::string address;                 // numeric; "" = where the store is
  uint16_t datagrams = 0;              // UDP port
  uint16_t transfers = 0;              // TCP port
  std::optional<uint32_t> claim = {};  // --node_rank

  friend bool operator==(const ProbeEndpoint&, const ProbeEndpoint&) = default;
};
std::string EndpointJson(const ProbeEndpoint& endpoint);
absl::StatusOr<ProbeEndpoint> ReadEndpoint(absl::string_view text);

// The endpoints of all nodes; nullopt = that node did not come.
struct EndpointTable {
  uint64_t token = 0;
  std::vector<std::optional<ProbeEndpoint>> endpoints;

  friend bool operator==(const EndpointTable&, const EndpointTable&) = default;
};
std::string TableJson(const EndpointTable& table);
absl::StatusOr<EndpointTable> ReadTable(absl::string_view text);

// Nodes are below `nodes`, none with itself.
std::string PlanJson(const ProbePlan& plan);
absl::StatusOr<ProbePlan> ReadPlan(absl::string_view text, uint32_t nodes);

std::string MeasurementsJson(const NodeMeasurements& measurements);
absl::StatusOr<NodeMeasurements> ReadMeasurements(absl::string_view text, uint32_t nodes);

// The result of the check, for all nodes.
struct NetworkVerdict {
  bool found = false;     // there are findings
  bool prevents = false;  // a finding prevents training
  std::string text;       // the report
  std::string brief;      // only the findings, one a line
  std::string json;       // the report as one JSON object; only on node 0

  friend bool operator==(const NetworkVerdict&, const NetworkVerdict&) = default;
};
std::string VerdictJson(const NetworkVerdict& verdict);
absl::StatusOr<NetworkVerdict> ReadVerdict(absl::string_view text);

// {"nodes": […], "ways": […], "findings": […], …}: docs/PREFLIGHT.md.
std::string ReportJson(const NetworkFacts& facts, absl::Duration took);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_CHECK_WIRE_H_
