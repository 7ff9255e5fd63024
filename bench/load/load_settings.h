#ifndef DDPRUN_BENCH_LOAD_LOAD_SETTINGS_H_
#define DDPRUN_BENCH_LOAD_LOAD_SETTINGS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace ddprun::bench {

// The settings of a run of the load program.
struct LoadSettings {
  std::string program;                           // ddprun
  uint32_t agents = 64;                          // at least 8
  bool heartbeats = true;                        // each agent's second connection, where R4 has one
  absl::Duration lease = absl::Seconds(5);       // of the job
  absl::Duration steady = absl::Seconds(30);     // how long the steady state is measured
  absl::Duration patience = absl::Seconds(120);  // for each phase, then the run has failed
  uint32_t long_failures = 64;                   // at most a quarter of the agents
};

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_LOAD_SETTINGS_H_
