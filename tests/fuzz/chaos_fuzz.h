#ifndef DDPRUN_TESTS_FUZZ_CHAOS_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_CHAOS_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

enum class ChaosOutcome { kPlan, kRefused };

// Takes the bytes as the plan of `ddprun chaos`, and as an event log that costs are worked out of:
// what is refused says where, what is accepted is within bounds, can be described and scheduled,
// and no lines make the report fail. Aborts if not.
ChaosOutcome ParseChaosBytes(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_CHAOS_FUZZ_H_
