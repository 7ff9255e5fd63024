#ifndef DDPRUN_LAUNCHER_CORE_WORKER_PLANS_H_
#define DDPRUN_LAUNCHER_CORE_WORKER_PLANS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

// Parts of LaunchPlan: how workers start, and what an agent does for them.
namespace ddprun::launcher {

// The workers' CUDA_VISIBLE_DEVICES and LOCAL_RANK.
struct DevicePlan {
  // --virtual_local_rank: each worker sees only its own device, as number 0.
  bool virtual_local_rank = false;
  // This node's devices (numbers, or UUIDs if the user's variable has them): with
  // virtual_local_rank at least one for each worker. Empty: CUDA_VISIBLE_DEVICES is inherited, or
  // with virtual_local_rank is the local rank.
  std::vector<std::string> visible;
};

// How workers start (docs/WARM.md).
struct WarmPlan {
  bool on = false;  // --warm on; the default where Python's workers may be started again
  // The user hasn't asked for warm starts (by --warm, --preload, --warm_memory or a daemon): no
  // start may be later than without them, and nothing is printed.
  bool unasked = false;
  // Workers use all processors, so imports ahead get only the time that workers leave.
  bool crowded = false;
  // No --warm is given, and the workers' program isn't Python: warm starts begin when a worker
  // reports that it goes on in its process when another one fails. The others then wait for little
  // but the start of the missing worker.
  bool for_survivors = false;
  // Without --warm off: the user's daemon is asked for an interpreter; if a daemon runs, `on` is
  // set.
  bool asks_daemon = false;
  std::vector<std::string> preload;  // --preload: modules that are imported ahead in any case
  // --warm_memory: how much the fork server may hold. If neither is set there is no limit, but no
  // fork server is started while less than a quarter of the memory is free.
  std::optional<uint64_t> memory_bytes;
  std::optional<double> memory_percent;  // of the machine's memory
  std::string kept;  // path of the file that earlier jobs have learned into; "" = nothing is kept
};

// --memory_checkpoints: how much memory the agent keeps for checkpoints of its workers
// (docs/ELASTIC.md). If neither is set, a quarter of the memory that the agent may use.
struct MemoryCheckpointPlan {
  std::optional<uint64_t> bytes;
  std::optional<double> percent;  // of that memory
};

// --leftovers: what happens to processes that workers leave behind.
struct LeftoverPlan {
  enum class Mode {
    kKill,   // they are killed with their worker
    kWait,   // they have time to end, then they are killed
    kSpare,  // as kWait, but after success they stay
  };
  Mode mode = Mode::kWait;
  // How long the agent waits for leftover processes after success. After a stop they have
  // kTimeAfterFailure, during which the next generation may already run.
  absl::Duration after_success = absl::Minutes(10);
  static constexpr absl::Duration kTimeAfterFailure = absl::Seconds(10);
};

// --on_hang: what happens to a hung worker.
enum class OnHang {
  kRestart,  // the worker counts as failed
  kReport,   // the user is notified, nothing else
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_WORKER_PLANS_H_
