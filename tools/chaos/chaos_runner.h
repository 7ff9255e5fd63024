#ifndef DDPRUN_TOOLS_CHAOS_CHAOS_RUNNER_H_
#define DDPRUN_TOOLS_CHAOS_CHAOS_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_log.h"
#include "base/event_loop.h"
#include "tools/chaos/agent_process.h"
#include "tools/chaos/chaos_command.h"
#include "tools/chaos/core/chaos_cost.h"
#include "tools/chaos/core/chaos_schedule.h"
#include "tools/chaos/network_fault.h"
#include "tools/chaos/timeline_reader.h"
#include "tools/chaos/worker_marks.h"

namespace ddprun::launcher {

// The shell of `ddprun chaos` on one node: runs the agent under test, follows the event log, reads
// the progress pages, injects the faults of the schedule, and records them in the same log.
// Threads: the loop's.
//
// The injector is the parent of the unchanged agent. So the program under test is the one that runs
// in production, and the injector survives when the agent is killed. A hidden option of the agent
// would test another program, and a message that requests faults would let its sender end jobs. The
// nodes agree on a victim without a message, because the victim follows from plan, seed and ranks.
// A program apart from ddprun would need the parsing of launches (plan, config, schedulers) twice.
class ChaosRunner {
 public:
  // Params: event_log — path that the agent writes to.
  ChaosRunner(EventLoop* loop, const ChaosRun* run, std::string event_log);
  ~ChaosRunner();
  ChaosRunner(const ChaosRunner&) = delete;
  ChaosRunner& operator=(const ChaosRunner&) = delete;

  // Starts the agent. Errors: the log can't be followed, no process can be made.
  absl::Status Start();

  // After the loop has ended:
  int status() const { return status_; }  // of the agent, for exit(3)
  const std::vector<TimelineLine>& lines() const { return lines_; }
  // Faults, by index, that should have been injected and never were.
  std::vector<size_t> NeverInjected() const;

 private:
  struct Worker {
    ProcessHandle process;
  };
  using OnOver = std::function<void()>;

  absl::Status StartAgent();
  void OnLines();
  void OnLine(const TimelineLine& line);
  void OnOwnAgent(const TimelineLine& line);
  void OnOwnService(const TimelineLine& line);
  void OnSpawn(uint64_t generation);
  void OnWorkerStarted(const TimelineLine& line);
  void OnAgentEnd(int how);
  void OnSignal(int number);
  void Look();
  void NoteMarks();
  void NoteReached();
  void Reconsider();

  void Inject(const Injection& injection);
  absl::Status Hit(const FaultPlan& fault, const Injection& injection);
  absl::Status StopFor(const FaultPlan& fault, const Injection& injection,
                       const ProcessHandle& process);
  absl::Status CutFor(const FaultPlan& fault, const Injection& injection);
  void NoteOver(const Injection& injection, const std::string& what, pid_t agent_pid = 0);
  void After(absl::Duration delay, std::function<void()> call);
  void End(int status);

  EventLoop* loop_;
  const ChaosRun* run_;
  std::string log_path_;
  std::string host_;
  EventLog own_;
  std::unique_ptr<TimelineReader> reader_;
  std::unique_ptr<AgentProcess> agent_;
  std::vector<std::unique_ptr<SignalWatch>> signals_;

  ChaosSchedule schedule_;
  ChaosView view_;
  NodesSeen nodes_;
  std::string node_id_;
  std::vector<Worker> workers_;  // by local rank
  ProcessHandle service_;
  std::unique_ptr<WorkerMarks> marks_;
  uint64_t marks_generation_ = 0;
  bool marked_ = false;  // the generation's first training step was noted
  bool reached_ = true;  // its last step was noted
  std::vector<TimelineLine> lines_;
  std::set<size_t> injected_;

  Timer look_;
  Timer time_;
  std::map<uint64_t, std::unique_ptr<Timer>> timers_;
  uint64_t next_timer_ = 0;
  std::map<uint64_t, std::unique_ptr<NetworkFault>> networks_;
  std::optional<Injection> killed_by_;  // the agent is dead, or about to be, by the plan
  bool ending_ = false;                 // the job is to end: no more faults
  int status_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_CHAOS_RUNNER_H_
