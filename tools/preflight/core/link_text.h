#ifndef DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_TEXT_H_
#define DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_TEXT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/doctor/core/machine_findings.h"
#include "tools/preflight/core/link_facts.h"
#include "tools/preflight/core/link_judge.h"

namespace ddprun::launcher {

// The report about a network, for people and programs. Pure; threads: any.

// A trouble in words; docs/PREFLIGHT.md lists the ids.
struct LinkFinding {
  Finding text;
  Trouble trouble;
};
std::vector<LinkFinding> DescribeTroubles(const NetworkFacts& facts);

// Totals and medians over all links.
struct NetworkSummary {
  uint64_t sent = 0;  // datagrams
  uint64_t arrived = 0;
  // nullopt = nothing was measured.
  std::optional<double> round_trip_median;  // seconds
  std::optional<double> round_trip_worst;
  Link round_trip_worst_link;
  std::optional<double> rate_median;  // bit/s
  std::optional<double> rate_worst;
  Link rate_worst_link;
};
NetworkSummary Summarize(const NetworkFacts& facts);

// The report; ends with a newline.
std::string NetworkText(const NetworkFacts& facts, const std::vector<LinkFinding>& findings,
                        absl::Duration took);

// "9.4 Gbit/s", "120 us".
std::string RateText(double bits_per_second);
std::string TimeText(double seconds);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_TEXT_H_
