#ifndef DDPRUN_TOOLS_CHAOS_CHAOS_PLAN_FILE_H_
#define DDPRUN_TOOLS_CHAOS_CHAOS_PLAN_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "tools/chaos/core/chaos_plan.h"

namespace ddprun::launcher {

inline constexpr size_t kFaultsMax = 100;
// The longest network fault: a longer one is an outage, not an experiment.
inline constexpr absl::Duration kNetworkFaultMax = absl::Minutes(10);

// Reads the text of a plan for `ddprun chaos` (docs/CHAOS.md) and checks all of it.
// Params: file — its name, for errors.
// Errors: usage — "<file>:<line>: what is wrong, and what to give instead"; unknown keys name the
// nearest one. Never throws; accepts any bytes. Pure; threads: any.
absl::StatusOr<ChaosPlan> ReadChaosPlan(const std::string& file, const std::string& text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_CHAOS_PLAN_FILE_H_
