#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_TEXT_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_TEXT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/core/supervisor/supervisor_events.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/verdict.h"

// The longer texts of a Supervisor, for the user and the timeline. Pure.
namespace ddprun::launcher {

// The fields of a Record.
using RecordFields = std::vector<std::pair<std::string, std::string>>;

RecordFields AssignmentFields(const rendezvous::Assignment& assignment);
RecordFields VerdictFields(const rendezvous::Verdict& verdict);

// "generation 2: 4 workers on 2 nodes, ranks 2-3 here, restart 1 of 3 (worker rank 0 on host1
// exited with code 1; rule worker_failure)".
std::string AssignmentText(const rendezvous::Assignment& assignment, uint32_t worker_count,
                           uint32_t max_restarts);

// "worker rank 2 (local rank 0, pid 100) was killed by SIGKILL".
std::string WorkerEndText(const WorkerEnd& end, uint32_t base_rank);

// `restarts`: the worker is killed because of --on_stopped restart.
std::string SuspendedText(const WorkerSuspended& event, uint32_t base_rank, bool restarts);

// Why this agent stays although its job has ended.
std::string LateAgentsText(absl::Duration left);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_TEXT_H_
