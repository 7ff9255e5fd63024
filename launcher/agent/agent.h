#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_H_

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
#include "ddprun/agent/v1/agent.pb.h"
#include "launcher/agent/agent_server.h"
#include "launcher/agent/gpu_watch.h"
#include "launcher/agent/hang_monitor.h"
#include "launcher/agent/stop_steps.h"
#include "launcher/agent/worker_launcher.h"
#include "launcher/agent/worker_notices.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/supervisor/supervisor.h"
#include "launcher/daemon/daemon_client.h"
#include "launcher/keeper/keeper_client.h"
#include "launcher/logs/log_catalog.h"
#include "launcher/machine/host_probe.h"
#include "launcher/marks/step_marks.h"
#include "launcher/os/memory_files.h"
#include "launcher/os/runtime_dir.h"
#include "launcher/output/console.h"
#include "launcher/service/elected_service.h"
#include "launcher/service/endpoint_finder.h"
#include "launcher/service/service_child.h"
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
  ~Agent();

  // Runs the job. Returns the exit status for the shell.
  int Run();
  // After Run(): whether the job ended here because its service was lost.
  bool LostService() const { return supervisor_ != nullptr && supervisor_->LostService(); }
  // After Run(): the highest step that this node's workers marked in their last generation.
  std::optional<uint64_t> LastStep() const {
    return supervisor_ == nullptr ? std::nullopt : supervisor_->last_step();
  }

 private:
  explicit Agent(LaunchPlan plan)
      : plan_(std::move(plan)), log_folders_(plan_.output.log_dir, plan_.job.run_id) {}

  absl::Status StartParts();
  absl::Status StartSideChannels(const std::string& hostname);
  void StartHangMonitor();
  WorkerNotices::Hooks NoticeHooks();
  void StartMarks();
  void PrepareWorker(SpawnRequest* request);
  absl::Status StartWarm();
  // Gets a keeper from the user's daemon, else by fork(2).
  absl::Status TakeKeeper(const EnvironmentLookup& environment, const std::string& cgroup,
                          int node_socket);
  std::vector<int> FdsOfThisProcess() const;
  std::optional<rendezvous::WarmUse> WarmUse();
  void WriteStart(uint64_t generation, uint32_t local_rank, pid_t pid, bool parked);
  void FeedEnd(rendezvous::Generation generation, WorkerEnd end);
  void StartWorkers(absl::Status status);
  void WatchSignals();
  void StartEndpoint();
  void OnEndpointFound(const FoundEndpoint& found);
  absl::StatusOr<std::string> MakeStateDir() const;
  void Host(const FoundEndpoint& found, const std::string& listen);
  void PublishServicePort(const std::string& host, int port);
  void OnServiceReady(const FoundEndpoint& found, absl::StatusOr<int> port);
  void OnServiceRestarted(const ServiceChild::Restarted& restarted);
  void StandForService(const FoundEndpoint& found);
  void Connect(const std::string& target, const FoundEndpoint& found, bool hosts,
               bool port_is_taken = false);
  KeeperClient::Callbacks KeeperCallbacks();
  bool KeepsLogs() const;
  agent::v1::NodeState NodeState() const;
  absl::Status StartAgentServer(const std::string& node_address);

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

  // Makes the workers' cgroup if possible. Returns its folder; "" = none.
  std::string MakeGuards();
  void OnGroupEmpty(uint64_t generation, uint32_t swept);
  void AddLeftoverCallbacks(KeeperClient::Callbacks* callbacks);
  SweepOptions SweepOptionsOf(const SweepGroup& effect);
  void OnLeftoversGone();
  void NotifyLeftoversKilled();
  void AwaitLeftovers();
  void OnGpusReleased(const GpuRelease::Result& result);
  void Fail(const absl::Status& error);
  void WriteConsole(absl::string_view lines);
  void KeepEnd();
  void OnSignal(int number);
  void LimitConsole();
  void ContinueEnd();
  void Write(const std::string& event, const nlohmann::json& fields = {});

  const Instant began_ = MonotonicNow();
  LaunchPlan plan_;
  LogFolders log_folders_;
  std::string guards_;         // for NodeInfo.guards
  std::string why_no_cgroup_;  // "" = workers have a cgroup
  Fd cgroup_claim_;
  std::optional<RuntimeDir> runtime_dir_;
  std::optional<KeeperProcess> keeper_process_;
  DaemonVisit daemon_;
  std::unique_ptr<EventLoop> loop_;
  std::shared_ptr<Console> console_;  // stderr
  EventLog events_;
  MasterStore master_{&plan_};
  std::unique_ptr<ServiceChild> service_;
  std::unique_ptr<ElectedService> elected_;  // instead of service_ if any node can run the service
  std::unique_ptr<WorkerLauncher> workers_;
  std::unique_ptr<KeeperClient> keeper_;
  std::unique_ptr<MemoryFiles> memory_files_;  // of the workers' checkpoints
  std::optional<StepMarks> marks_;             // nullopt = steps aren't counted for workers
  std::unique_ptr<WarmStarts> warm_;           // null = workers start cold
  std::unique_ptr<SideChannels> side_channels_;
  std::unique_ptr<HangMonitor> hangs_;
  std::unique_ptr<WorkerNotices> notices_;
  std::unique_ptr<StopSteps> stop_steps_;
  std::unique_ptr<GpuRelease> gpus_;
  std::unique_ptr<GpuWatch> gpu_watch_;
  std::unique_ptr<AgentServer> agent_server_;
  std::unique_ptr<EndpointFinder> finder_;
  std::unique_ptr<rendezvous::RendezvousClient> client_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<Timer> console_limit_;  // armed when a signal has ended this agent
  std::vector<std::unique_ptr<SignalWatch>> signals_;
  std::string endpoint_name_;
  std::string node_id_;
  rendezvous::Incarnation incarnation_;
  // The generation to start as soon as its store has been tried.
  std::optional<rendezvous::Assignment> starting_;
  bool feeding_ = false;
  std::vector<SupervisorEvent> queued_;  // events that arose while effects were carried out
  std::set<uint32_t> kept_;  // local ranks of workers that outlive, or outlived, their generation
  std::optional<Exit> exit_;
  std::shared_ptr<absl::Notification> end_kept_;  // null = no record is written
  bool left_service_ = false;                     // elected_ has ended
  uint32_t left_count_ = 0;                       // leftovers that have time to end
  std::vector<LeftProcess> left_named_;           // the first of them
  std::vector<std::string> leftovers_killed_;     // since the user was last notified
  std::unique_ptr<Timer> leftovers_notice_;       // when to print that this agent waits for some
  absl::Duration leftovers_time_;
  bool leftovers_stay_ = false;
  bool gave_up_console_ = false;  // don't wait for the console any more
  bool told_end_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_H_
