#ifndef DDPRUN_LAUNCHER_SIDE_CHANNELS_SIDE_CHANNELS_H_
#define DDPRUN_LAUNCHER_SIDE_CHANNELS_SIDE_CHANNELS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/supervisor/worker_group.h"
#include "launcher/side_channels/elastic_events.h"
#include "launcher/side_channels/finish_barrier.h"
#include "launcher/side_channels/health_server.h"
#include "launcher/side_channels/watchdog.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::launcher {

// torchrun's optional services, each off by default: the watchdog
// (TORCHELASTIC_ENABLE_FILE_TIMER=1), health checks (TORCHELASTIC_HEALTH_CHECK_PORT), events on the
// console (--event_log_handler console), and the barrier at the workers' end (--run_path). Only the
// watchdog acts on workers. Threads: the loop's.
class SideChannels {
 public:
  struct Hooks {
    std::function<void(uint64_t generation, pid_t pid, int signal)> signal_worker;
    std::function<std::string()> state;                   // the agent's state, one word
    std::function<void(const std::string& text)> record;  // an action of the watchdog, for the log
    // A worker of --run_path has finished, and waits for the others.
    std::function<void(uint32_t local_rank)> finished;
  };
  struct Paths {
    std::string timer_file;  // the FIFO's, unless TORCHELASTIC_TIMER_FILE has another
    std::string finish_barrier;
  };

  // Errors: those of the watchdog, and of the barrier at the workers' end. If the health port is
  // taken, a warning is printed, and the run goes on.
  static absl::StatusOr<std::unique_ptr<SideChannels>> Create(
      EventLoop* loop, const LaunchPlan* plan, const std::string& hostname, Paths paths,
      const EnvironmentLookup& environment, Hooks hooks);

  // The workers' FIFO; "" = there is no watchdog.
  std::string timer_file() const { return watchdog_ == nullptr ? "" : watchdog_->path(); }
  // The socket of the barrier at the workers' end; "" = no barrier.
  std::string finish_barrier() const { return finish_ == nullptr ? "" : paths_.finish_barrier; }
  // The port of /healthz; 0 = none.
  uint16_t health_port() const { return health_ == nullptr ? 0 : health_->port(); }

  void OnAssignment(const rendezvous::Assignment& assignment);
  void OnStarted(uint32_t local_rank, pid_t pid);
  // Turns the end of a worker whose timer expired into a failure.
  void OnEnded(WorkerEnd* end);
  // Workers of these local ranks still run, and wait for the next generation.
  void OnEmpty(const std::set<uint32_t>& kept);
  // The pids of workers that run.
  std::set<pid_t> PidsOf(const std::set<uint32_t>& local_ranks) const;
  void OnExit(bool failed);

 private:
  SideChannels(EventLoop* loop, const LaunchPlan* plan, Paths paths, Hooks hooks)
      : loop_(loop), plan_(plan), paths_(std::move(paths)), hooks_(std::move(hooks)) {}
  absl::Status StartWatchdog(std::string path);
  void StartHealth(const std::string& port);
  std::optional<uint32_t> WorkerOf(pid_t pid) const;
  void OnExpired(const TimerTable::Expired& expired);
  std::string HealthBody() const;

  EventLoop* loop_;
  const LaunchPlan* plan_;
  const Paths paths_;
  Hooks hooks_;
  std::optional<rendezvous::Assignment> assignment_;
  std::map<pid_t, uint32_t> workers_;        // that run, with their local ranks
  std::map<uint32_t, std::string> expired_;  // why, by local rank, until the worker ends
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<HealthServer> health_;
  std::unique_ptr<ElasticEvents> events_;
  std::unique_ptr<FinishBarrier> finish_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SIDE_CHANNELS_SIDE_CHANNELS_H_
