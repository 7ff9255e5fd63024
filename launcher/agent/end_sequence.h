#ifndef DDPRUN_LAUNCHER_AGENT_END_SEQUENCE_H_
#define DDPRUN_LAUNCHER_AGENT_END_SEQUENCE_H_

#include <memory>
#include <optional>

#include "base/event_loop.h"
#include "launcher/agent/leftover_notices.h"
#include "launcher/agent/service_host.h"
#include "launcher/agent/worker_launcher.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/supervisor/supervisor_events.h"
#include "launcher/output/console.h"

namespace ddprun::launcher {

// What an agent waits for between the end of its job and its own: the service's departure, the
// workers' output, leftovers, and the console. Prints the end in between, after the workers' last
// lines. Then the loop stops. Threads: the loop's.
class EndSequence {
 public:
  // All outlive this.
  struct Parts {
    EventLoop* loop = nullptr;
    const LaunchPlan* plan = nullptr;
    Console* console = nullptr;
    WorkerLauncher* workers = nullptr;
    LeftoverNotices* leftovers = nullptr;
    ServiceHost* service = nullptr;
  };

  explicit EndSequence(const Parts& parts) : parts_(parts) {}
  ~EndSequence() { parts_.console->Forget(this); }
  EndSequence(const EndSequence&) = delete;
  EndSequence& operator=(const EndSequence&) = delete;

  // The job is over on this node. Called once.
  void Begin(const Exit& exit);
  // Begin()'s; nullopt = the job isn't over.
  const std::optional<Exit>& exit() const { return exit_; }
  // One of the parts is ready.
  void Continue();
  // A signal that ends the agent came after the job's end: it waits no longer.
  void Cut();

 private:
  void LimitConsole();
  void ReportOnce();

  const Parts parts_;
  std::optional<Exit> exit_;
  bool left_service_ = false;
  bool reported_ = false;
  std::unique_ptr<Timer> console_limit_;  // armed when a signal has ended this agent
  bool gave_up_console_ = false;          // don't wait for the console any more
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_END_SEQUENCE_H_
