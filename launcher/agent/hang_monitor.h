#ifndef DDPRUN_LAUNCHER_AGENT_HANG_MONITOR_H_
#define DDPRUN_LAUNCHER_AGENT_HANG_MONITOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "launcher/core/attentive_clock.h"
#include "launcher/core/hang_detector.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/supervisor/supervisor_events.h"
#include "launcher/core/time_book.h"
#include "launcher/os/progress_pages.h"
#include "launcher/os/stack_probe.h"
#include "launcher/os/wait_probe.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::launcher {

// Watches this node's workers for hangs: feeds the detector (launcher/core) with the words of their
// pages and samples of /proc when it wants them, and passes its findings to the supervisor.
// Threads: the loop's.
class HangMonitor {
 public:
  struct Hooks {
    // For the supervisor.
    std::function<void(ProgressFound)> found;
    // A worker hangs: `end` has the evidence, and must be completed with the worker's files.
    std::function<void(rendezvous::Generation, WorkerEnd end)> end_worker;
    // For the event log.
    std::function<void(const std::string& event,
                       std::vector<std::pair<std::string, std::string>> fields)>
        record;
  };

  HangMonitor(EventLoop* loop, const LaunchPlan* plan, Hooks hooks);
  ~HangMonitor();

  // To be called before the workers of a generation are spawned. Workers of the local ranks `kept`
  // keep their page, as if they hadn't marked in it.
  void Begin(const rendezvous::Assignment& assignment, const std::set<uint32_t>& kept);
  // DDPRUN_PROGRESS of a worker; "" = there is no page.
  std::string page_path(uint32_t local_rank) const;
  // Null when there is none.
  ProgressPages* pages() const { return pages_.get(); }
  bool runs(uint32_t local_rank) const {
    return local_rank < pids_.size() && pids_[local_rank] != 0;
  }
  // Median training step of the slowest worker; zero = unknown.
  absl::Duration step_time() const {
    return detector_ == nullptr ? absl::ZeroDuration() : detector_->step_time();
  }
  // What the workers report about their training.
  TrainingReport training() const {
    return pages_ == nullptr ? TrainingReport() : pages_->Training();
  }
  // Adds what `ddprun status` and the page show of the workers, if there are any. Requires: the
  // message is a Renewal.
  void FillIn(rendezvous::AgentMessage& renewal);
  void OnStarted(uint32_t local_rank, pid_t pid);
  // Returns false if this end was already reported as that of a hung worker. `well`: with status 0.
  bool OnEnded(uint32_t local_rank, bool well);
  // A worker has done its work and waits for the others to end, so it can't hang any more.
  void OnFinished(uint32_t local_rank);
  // The workers of the generation are being ended, or one has failed: their time is accounted for
  // up to here. Only the first call counts.
  void CloseBook();
  // How far the workers of a generation got, and how they spent it.
  struct Summary {
    std::optional<uint64_t> step;  // highest that one of them marked; nullopt = none did
    std::optional<rendezvous::NodeTime> time;
  };
  // No process of the generation is left.
  Summary OnEmpty();
  // Where a running worker is, for people: "it waits for a lock; at train.py:9 in upload". `waits`:
  // only what it waits for, "" = not known. Reads the state of its threads.
  std::string WhereText(uint32_t local_rank, std::string* waits) const;

  void Do(const LookAtWorkers& request);
  void Do(const HandleHungWorkers& order);

 private:
  TimeBook::Look LookNow() const;  // requires: there are pages
  void LookAtPages(Instant now);
  void Look();
  void Sample();
  void LookAtWitnesses();
  bool IsSealed(uint32_t local_rank);
  void Arm();
  Instant Now();
  void Name(uint32_t local_rank, const std::string& evidence);
  void LookAtNamed(Instant now);
  void EndWorker(uint32_t local_rank, const std::string& evidence);
  void Conclude(uint32_t local_rank, const std::string& evidence, const WorkerVital& vital,
                const NativeStack::Result& native);

  EventLoop* loop_;
  const LaunchPlan* plan_;
  Hooks hooks_;
  HangSettings hangs_;                   // the plan's, with what was learned of them
  AttentiveClock clock_;                 // the detector's time
  Instant asked_ = Instant::Infinite();  // what timer_ is armed for
  ProcessProbe probe_;
  rendezvous::Generation generation_;
  uint32_t base_rank_ = 0;
  std::unique_ptr<ProgressPages> pages_;                     // null = none could be made
  std::unique_ptr<ProgressPages> last_pages_;                // of the generation before
  std::unique_ptr<HangDetector> detector_;                   // null = no generation
  std::optional<TimeBook> book_;                             // null = no generation
  std::vector<pid_t> pids_;                                  // by local rank; 0 = doesn't run
  std::set<uint32_t> ended_;                                 // reported as hung
  std::map<uint32_t, std::unique_ptr<NativeStack>> stacks_;  // being read, by local rank
  std::set<std::pair<uint32_t, uint64_t>> told_;  // only reported (--on_hang): rank and progress
  struct Named {
    uint64_t progress = 0;  // the detector's
    Instant since;          // when that progress was made
    std::string why;
  };
  std::map<uint32_t, ProcessWait> waits_;  // as last seen, of workers that may be deadlocked
  std::map<uint32_t, Named> named_;        // suspicions that were reported, by local rank
  std::unique_ptr<Timer> timer_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_HANG_MONITOR_H_
