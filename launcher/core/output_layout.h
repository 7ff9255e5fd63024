#ifndef DDPRUN_LAUNCHER_CORE_OUTPUT_LAYOUT_H_
#define DDPRUN_LAUNCHER_CORE_OUTPUT_LAYOUT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/core/launch_plan.h"

// Where each worker's streams go, and the names of the folders for them (docs/LOGS.md).
// Pure; threads: any.
namespace ddprun::launcher {

enum class OutputStream { kStdout, kStderr };

// False with --log_dir /dev/null: no log, no error file.
bool KeepsFiles(const OutputPlan& output);

// Where a stream goes. Output of workers that --local_ranks_filter leaves out never reaches the
// console.
StreamSink SinkOf(const OutputPlan& output, OutputStream stream, uint32_t local_rank);

// "job_7_x1y2z3a4": a run id may hold any character, a folder's name may not.
std::string RunFolderName(absl::string_view run_id, absl::string_view random);

// "attempt_1"; when that folder is an older generation's, "attempt_1.g4".
//
// torchrun has one folder per restart count, and empties it before use. Here a node that joins or
// leaves begins a generation without a new count, so the earlier logs would be lost. The generation
// is the same on all nodes, so folders that belong together have the same name.
std::string AttemptFolderName(uint32_t restart_count);
std::string AttemptFolderName(uint32_t restart_count, uint64_t generation);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_OUTPUT_LAYOUT_H_
