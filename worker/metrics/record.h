#ifndef DDPRUN_WORKER_METRICS_RECORD_H_
#define DDPRUN_WORKER_METRICS_RECORD_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace ddprun::worker {

// The figures of one step, or one figure of it; docs/METRICS.md has their names and units.
struct MetricsRecord {
  int64_t step = 0;
  absl::Time time;  // of the wall clock
  std::vector<std::pair<std::string, double>> values;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_RECORD_H_
