#ifndef DDPRUN_LAUNCHER_SIDE_CHANNELS_ELASTIC_EVENTS_H_
#define DDPRUN_LAUNCHER_SIDE_CHANNELS_ELASTIC_EVENTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/instant.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/supervisor/worker_group.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::launcher {

// torchrun's events (--event_log_handler console): one JSON object a line, in torchrun's form, for
// the states RENDEZVOUS, ASSIGN_WORKER_RANKS, START, SUCCEEDED, FAILED and TERMINATED. Times are
// durations; "timestamp" is 0, as in torchrun. Threads: one at a time.
// Source: torch.distributed.elastic.events.api.Event.
class ElasticEvents {
 public:
  // `write`: takes one line, with its newline.
  ElasticEvents(const LaunchPlan* plan, std::string hostname, Instant now,
                std::function<void(const std::string&)> write);

  void OnAssignment(Instant now, const rendezvous::Assignment& assignment);
  void OnStarted(uint32_t local_rank, uint32_t pid);
  void OnEnded(const WorkerEnd& end);
  // No process of the generation is left; the next rendezvous begins.
  void OnEmpty(Instant now) { rendezvous_began_ = now; }
  // The agent ends: writes how each worker of the last generation ended, then how the agent did.
  // `failed`: the agent was ended by a signal or by the loss of its service or keeper, not by a
  // verdict.
  void OnExit(Instant now, bool failed);

 private:
  struct Worker {
    uint32_t pid = 0;
    std::optional<WorkerEnd> end;
  };
  struct Subject;
  void Write(const std::string& state, const Subject& subject);

  const LaunchPlan* plan_;
  std::string hostname_;
  Instant began_;
  Instant rendezvous_began_;
  std::function<void(const std::string&)> write_;
  std::optional<rendezvous::Assignment> assignment_;
  std::vector<Worker> workers_;
  int64_t run_seconds_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SIDE_CHANNELS_ELASTIC_EVENTS_H_
