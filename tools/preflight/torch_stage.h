#ifndef DDPRUN_TOOLS_PREFLIGHT_TORCH_STAGE_H_
#define DDPRUN_TOOLS_PREFLIGHT_TORCH_STAGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/preflight/meeting.h"
#include "tools/preflight/network_check.h"

namespace ddprun::launcher {

// torch_test.py, which each rank of `ddprun test` runs with Python's -c.
extern const char kTorchTest[];

// Whether all nodes have Python with torch: the others would wait for a node without it until a
// time-out. Each node's first worker asks `python` ("" = none) without importing torch; the other
// workers only wait. Returns: "" = all have it; else why the test with torch is left out, for
// people. Errors: as CheckNetwork(). Threads: blocks the caller, at most 10 s for Python.
absl::StatusOr<std::string> AgreeOnTorch(const CheckMember& place, bool first_worker,
                                         const std::string& python, Meeting* meeting);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_TORCH_STAGE_H_
