#ifndef DDPRUN_LAUNCHER_CORE_OUTPUT_LAYOUT_H_
#define DDPRUN_LAUNCHER_CORE_OUTPUT_LAYOUT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/core/launch_plan.h"

// Which stream of which worker goes where, and what the folders for it are called (docs/LOGS.md).
// Pure; threads: any.
namespace ddprun::launcher {

enum class OutputStream { kStdout, kStderr };

// False with --log_dir /dev/null: no log, no error file.
bool KeepsFiles(const OutputPlan& output);

// Where a stream goes when --local_ranks_filter is taken into account: of workers that it leaves
// out, nothing reaches the console.
StreamSink SinkOf(const OutputPlan& output, OutputStream stream, uint32_t local_rank);

// "job_7_x1y2z3a4": a run id may hold any character, a folder's name may not.
std::string RunFolderName(absl::string_view run_id, absl::string_view random);

// "attempt_1"; when that folder is an older generation's, "attempt_1.g4".
//
// torchrun has one folder per restart count and deletes what is in it. A node that joins or leaves
// begins a generation without a new count, and the logs up to then would be gone. The generation is
// the same on all nodes, so folders that belong together can be found.
std::string AttemptFolderName(uint32_t restart_count);
std::string AttemptFolderName(uint32_t restart_count, uint64_t generation);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_OUTPUT_LAYOUT_H_
