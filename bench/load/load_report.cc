#include "bench/load/load_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace ddprun::bench {
namespace {

// The smallest one that `percent` of 100 don't exceed.
absl::Duration Percentile(const std::vector<absl::Duration>& sorted, size_t percent) {
  return sorted[std::min(sorted.size() - 1, sorted.size() * percent / 100)];
}

}  // namespace

double Milliseconds(absl::Duration time) {
  return std::round(absl::ToDoubleMilliseconds(time) * 10) / 10;
}

nlohmann::json Spread(std::vector<absl::Duration> times) {
  nlohmann::json spread = {{"count", times.size()}};
  if (times.empty()) return spread;
  std::sort(times.begin(), times.end());
  spread["p50_ms"] = Milliseconds(Percentile(times, 50));
  spread["p99_ms"] = Milliseconds(Percentile(times, 99));
  spread["max_ms"] = Milliseconds(times.back());
  return spread;
}

nlohmann::json SpreadSince(Instant begin, const std::vector<Instant>& times) {
  std::vector<absl::Duration> durations;
  durations.reserve(times.size());
  for (const Instant time : times) durations.push_back(time - begin);
  return Spread(std::move(durations));
}

std::string ReportText(const nlohmann::json& report) {
  std::string text;
  for (const auto& [name, value] : report.items()) {
    if (value.is_object()) {
      absl::StrAppend(&text, name, "\n");
      for (const auto& [key, figure] : value.items()) {
        absl::StrAppend(&text, "  ", key, ": ", figure.dump(), "\n");
      }
    } else {
      absl::StrAppend(&text, name, ": ", value.dump(), "\n");
    }
  }
  return text;
}

}  // namespace ddprun::bench
