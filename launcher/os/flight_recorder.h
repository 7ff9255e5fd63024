#ifndef DDPRUN_LAUNCHER_OS_FLIGHT_RECORDER_H_
#define DDPRUN_LAUNCHER_OS_FLIGHT_RECORDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace ddprun::launcher {

// NCCL's flight recorder: when a collective hangs or fails, each rank writes what it was doing to
// <prefix><rank> (c10d's DebugInfoWriter, torch 2.2 to 2.11). The next generation writes over it.

// Where torch may write, most likely first: TORCH_FR_DUMP_TEMP_FILE,
// TORCH_NCCL_DEBUG_INFO_TEMP_FILE, or the defaults of newer and older versions. Threads: any.
std::vector<std::string> FlightRecorderPrefixes(
    const std::function<std::optional<std::string>(const std::string& name)>& environment);

// Copies the dump of one rank to `folder`/flight_recorder_rank_<rank>, so that
// `python3 -m torch.distributed.flight_recorder.fr_trace -p flight_recorder_rank_ <folder>` reads
// it. Dumps that were last written before `since` (wall clock) are of older runs. Returns: the path
// of the copy; that of the dump itself when `folder` is "" or it can't be copied (it is larger than
// 64 MiB, or the disk is full); "" when there is none. Blocks for the copy. Threads: any.
std::string CollectFlightRecorderDump(const std::vector<std::string>& prefixes, uint32_t rank,
                                      absl::Time since, const std::string& folder);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_FLIGHT_RECORDER_H_
