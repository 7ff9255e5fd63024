#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_TEXT_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/instant.h"
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

// What this node waits for. The user is notified when a wait has lasted for a second, once for each
// reason.
// Pure; one thread.
class StandbyNotice {
 public:
  // Params: reason: "" = none; spare: the job runs without this node. Returns: whether the reason
  // is a new one.
  bool OnStandby(Instant now, const std::string& reason, bool spare = false);
  // A generation begins: the wait is over.
  void OnAssigned() { *this = StandbyNotice(); }
  // The text for the user, when it is due.
  std::optional<std::string> OnTimer(Instant now);
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return tell_at_; }
  // The node waits while others work.
  bool is_spare() const { return spare_; }
  // The service has said that the node has to wait.
  bool waits() const { return !reason_.empty(); }

 private:
  std::string reason_;                     // "" = the node doesn't wait
  bool spare_ = false;                     // only while the node waits
  Instant tell_at_ = Instant::Infinite();  // infinite once the user was notified
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_TEXT_H_
