#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/event_log.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/log.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "launcher/agent/agent_server.h"
#include "launcher/agent/end_sequence.h"
#include "launcher/agent/gpu_watch.h"
#include "launcher/agent/hang_monitor.h"
#include "launcher/agent/leftover_notices.h"
#include "launcher/agent/service_host.h"
#include "launcher/agent/stop_steps.h"
#include "launcher/agent/worker_launcher.h"
#include "launcher/agent/worker_notices.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/supervisor/supervisor.h"
#include "launcher/daemon/daemon_client.h"
#include "launcher/keeper/keeper_client.h"
#include "launcher/logs/log_catalog.h"
#include "launcher/marks/step_marks.h"
#include "launcher/os/memory_files.h"
#include "launcher/os/runtime_dir.h"
#include "launcher/output/console.h"
#include "launcher/side_channels/side_channels.h"
#include "launcher/stores/master_store.h"
#include "launcher/warm/warm_starts.h"
#include "rendezvous/client/rendezvous_client.h"

namespace ddprun::launcher {

// One `ddprun` process on one node: wires the supervisor (which decides) with the keeper, the
// rendezvous client, the service child, the workers' server, signals and the clock.
//
// Life: Prepare() while the process has one thread (it forks), then Run() until the job is over.
// Threads: the one that made it.
class Agent {
 public:
  // Forks the keeper and the service child, makes the runtime directory and reserves the master
  // port. The keeper holds `node_socket` (-1 = none), the caller's own, as long as it lives: the
  // other tasks of a Slurm step wait for the last holder's end.
  // Errors: those of the failing step; the text names it.
  static absl::StatusOr<std::unique_ptr<Agent>> Prepare(LaunchPlan plan, int node_socket);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Runs the job. Returns the exit status for the shell.
  int Run();
  // After Run(): whether the job ended here because its service was lost.
  bool LostService() const { return supervisor_ != nullptr && supervisor_->LostService(); }
  // After Run(): the highest step that this node's workers marked in their last generation.
  std::optional<uint64_t> LastStep() const {
    return supervisor_ == nullptr ? std::nullopt : supervisor_->last_step();
  }

 private:
  // What may end the workers if this agent can't (NodeInfo.guards).
  struct Guards {
    std::string text;
    std::string cgroup;         // the workers' folder; "" = none
    std::string why_no_cgroup;  // "" = workers have one
    Fd cgroup_claim;
  };
  // The log goes to the agent's console until this ends.
  struct LogToConsole {
    ~LogToConsole() { SetLogWriter(nullptr); }
  };

  explicit Agent(LaunchPlan plan)
      : plan_(std::move(plan)), log_folders_(plan_.output.log_dir, plan_.job.run_id) {}

  static Guards MakeGuards(bool use_cgroup);
  // Gets a keeper from the user's daemon, else by fork(2).
  absl::Status TakeKeeper(const EnvironmentLookup& environment, int node_socket);
  std::vector<int> FdsOfThisProcess() const;

  absl::Status StartParts();
  SupervisorConfig ConfigOf(const std::string& hostname) const;
  absl::Status StartWorkerParts(const std::string& hostname);
  absl::Status StartSideChannels(const std::string& hostname);
  void StartHangMonitor();
  WorkerNotices::Hooks NoticeHooks();
  void StartMarks();
  void PrepareWorker(SpawnRequest* request);
  absl::Status StartWarm();
  void StartService();
  void Connect(const ServiceHost::Target& target);
  bool JoinsAnew(const ServiceHost::Target& target, const absl::Status& why, bool will_retry);
  absl::Status StartAgentServer(const std::string& node_address);
  void WatchSignals();

  KeeperClient::Callbacks KeeperCallbacks();
  void StartWorkers(absl::Status status);
  void WriteStart(uint64_t generation, uint32_t local_rank, pid_t pid, bool parked);
  void FeedEnd(rendezvous::Generation generation, WorkerEnd end);
  void OnGroupEmpty(uint64_t generation, uint32_t swept);
  void OnGpusReleased(const GpuRelease::Result& result);
  void OnLeftoversGone();

  void Feed(const SupervisorEvent& event);
  void Do(const SendMessage& effect);
  void Do(const FinishStream& effect);
  void Do(const SpawnGroup& effect);
  void Do(const SignalGroup& effect);
  void Do(const SweepGroup& effect);
  void Do(const EndGeneration& effect);
  void Do(const LookAtWorkers& effect) { hangs_->Do(effect); }
  void Do(const HandleHungWorkers& effect);
  void Do(const LookAtStopStep& effect) { stop_steps_->Do(effect); }
  void Do(const CommitStopStep& effect) { stop_steps_->Do(effect); }
  void Do(const NotifyUser& effect);
  void Do(const Record& effect);
  void Do(const Exit& effect);
  void KeepEnd(const Exit& exit);
  void Fail(const absl::Status& error);
  void OnSignal(int number);

  bool KeepsLogs() const;
  std::optional<rendezvous::WarmUse> WarmUse();
  agent::v1::NodeState NodeState() const;
  void WriteConsole(absl::string_view lines);
  void Write(const std::string& event, const nlohmann::json& fields = {});

  // A part calls only those above it, so that these are still there when it ends. Feed() asks
  // end_, and the parts of end_ come later.
  const Instant began_ = MonotonicNow();
  LaunchPlan plan_;
  LogFolders log_folders_;
  Guards guards_;
  std::optional<RuntimeDir> runtime_dir_;
  std::optional<KeeperProcess> keeper_process_;
  DaemonVisit daemon_;
  std::unique_ptr<EventLoop> loop_;
  std::shared_ptr<Console> console_;  // stderr
  LogToConsole log_to_console_;
  EventLog events_;
  std::vector<std::unique_ptr<SignalWatch>> signals_;
  std::string node_id_;
  rendezvous::Incarnation incarnation_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Timer> timer_;  // at the supervisor's next deadline
  bool feeding_ = false;
  std::vector<SupervisorEvent> queued_;  // events that arose while effects were carried out
  std::unique_ptr<EndSequence> end_;
  MasterStore master_{&plan_};
  ServiceHost service_{&plan_};
  std::unique_ptr<WorkerLauncher> workers_;
  std::unique_ptr<LeftoverNotices> leftovers_;
  std::unique_ptr<GpuRelease> gpus_;
  std::unique_ptr<GpuWatch> gpu_watch_;
  std::unique_ptr<HangMonitor> hangs_;
  std::unique_ptr<WorkerNotices> notices_;
  std::unique_ptr<StopSteps> stop_steps_;
  std::unique_ptr<SideChannels> side_channels_;
  std::unique_ptr<KeeperClient> keeper_;
  std::optional<StepMarks> marks_;             // nullopt = steps aren't counted for workers
  std::unique_ptr<WarmStarts> warm_;           // null = workers start cold
  std::unique_ptr<MemoryFiles> memory_files_;  // of the workers' checkpoints
  std::unique_ptr<rendezvous::RendezvousClient> client_;
  std::unique_ptr<AgentServer> agent_server_;  // last: it answers waiting calls when it ends
  // The generation to start as soon as its store has been tried.
  std::optional<rendezvous::Assignment> starting_;
  std::set<uint32_t> kept_;  // local ranks of workers that outlive, or outlived, their generation
  std::shared_ptr<absl::Notification> end_kept_;  // null = no record is written
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_H_
