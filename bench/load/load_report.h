#ifndef DDPRUN_BENCH_LOAD_LOAD_REPORT_H_
#define DDPRUN_BENCH_LOAD_LOAD_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::bench {

// {"count": …, "p50_ms": …, "p99_ms": …, "max_ms": …}; only the count if there are no times.
nlohmann::json Spread(std::vector<absl::Duration> times);
// Spread() of the times from `begin` to those of `times` that are later.
nlohmann::json SpreadSince(Instant begin, const std::vector<Instant>& times);

double Milliseconds(absl::Duration time);

// A report for people, one figure a line.
std::string ReportText(const nlohmann::json& report);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_LOAD_REPORT_H_
