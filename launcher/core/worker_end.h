#ifndef DDPRUN_LAUNCHER_CORE_WORKER_END_H_
#define DDPRUN_LAUNCHER_CORE_WORKER_END_H_

#include "base/instant.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::launcher {

// How one worker ended, well or not. KeeperClient sets `local_rank`, `pid`, the status and `seen`;
// WorkerLauncher adds its files and facts; WorkerGroup::Describe says which worker of the job it
// was. A worker that never started has pid 0.
struct WorkerEnd : rendezvous::WorkerFailure {
  Instant seen;  // when the keeper saw it

  bool ok() const { return exit_code == 0 && signal == 0 && start_error.empty(); }
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_WORKER_END_H_
