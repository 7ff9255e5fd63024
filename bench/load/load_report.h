#ifndef DDPRUN_BENCH_LOAD_LOAD_REPORT_H_
#define DDPRUN_BENCH_LOAD_LOAD_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::bench {

// {"count": …, "p50_ms": …, "p99_ms": …, "max_ms": …}; of none only the count.
nlohmann::json Spread(std::vector<absl::Duration> times);
// The same of what happened after `begin`.
nlohmann::json SpreadSince(Instant begin, const std::vector<Instant>& times);

double Milliseconds(absl::Duration time);

// The same for people, a line a figure.
std::string ReportText(const nlohmann::json& report);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_LOAD_REPORT_H_
