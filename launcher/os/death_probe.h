#ifndef DDPRUN_LAUNCHER_OS_DEATH_PROBE_H_
#define DDPRUN_LAUNCHER_OS_DEATH_PROBE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/core/death_facts.h"

namespace ddprun::launcher {

// Finds out why a worker died: core files (core(5)), out-of-memory kills (memory.events of
// cgroups v2, memory.oom_control of v1, oom_kill in /proc/vmstat), resource limits, shared memory,
// full file systems. The workers are in our own cgroup and have our own limits. Threads: one at a
// time.
class DeathProbe {
 public:
  // `root` comes before /proc and /sys; for tests.
  explicit DeathProbe(std::string root = "");

  // Notes the counters, to be compared later: call it before a generation's workers start.
  void Begin();
  // WorkerFailure::facts, the most telling first. `output_folder`: of the worker's log files; "" =
  // none. Blocks for some small reads.
  std::vector<std::string> Facts(const WorkerEnd& end, const std::string& output_folder) const;

 private:
  // Counters of the kernel; nullopt = not known.
  struct Counters {
    std::optional<uint64_t> cgroup_kills;
    std::optional<uint64_t> host_kills;
  };
  Counters Count() const;
  MemoryWitness Witness() const;
  std::string CoreFact(const WorkerEnd& end) const;
  std::string SharedMemoryFact(const WorkerEnd& end) const;
  std::string DiskFact(const WorkerEnd& end, const std::string& output_folder) const;
  std::string Text(const std::string& path) const;

  std::string root_;
  std::string cgroup_;  // its folder; "" = none
  bool is_v2_ = false;
  Counters before_;
};

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

#endif  // DDPRUN_LAUNCHER_OS_DEATH_PROBE_H_
