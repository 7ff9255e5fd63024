#ifndef DDPRUN_LAUNCHER_WARM_WARM_STARTS_H_
#define DDPRUN_LAUNCHER_WARM_WARM_STARTS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/keeper/keeper_client.h"
#include "launcher/warm/core/warm_starter.h"
#include "launcher/warm/memory.h"

namespace ddprun::launcher {

// Why the workers of a plan can't start warm; "" = they can.
std::string WhyCold(const LaunchPlan& plan);

// Starts the workers of one agent warm, as its WarmStarter decides. Owns the files by which imports
// are learned, and asks the keeper to run a fork server: an interpreter that has imported what the
// workers report that they import, or the workers' own program, once a worker has offered it
// (OnCanPark). For a plan with warm.for_survivors only after a worker has reported that it goes on
// in its process (OnCanRejoin). Prints nothing unless the user asked for warm starts.
// Threads: the loop's.
//
// for_survivors is the default: a job with survivors waits for the one worker that starts, so a
// warm start shortens the wait. If all workers start anew, they wait longer for the checkpoint and
// for each other. A worker's report counts, not the program's option, because the program may set
// the option itself.
class WarmStarts {
 public:
  struct Hooks {
    std::function<void(const std::string& event,
                       const std::vector<std::pair<std::string, std::string>>& fields)>
        record;
    std::function<void(const std::string& text)> tell;  // prints a line for the user
    // Completes the environment of the interpreter that workers are forked from with what theirs
    // has besides.
    std::function<void(std::vector<std::string>* environment)> prepare;
    // The workers have finished their imports: all were forked, or their list was kept. May be
    // called again; null = unused.
    std::function<void()> settled;
  };

  // Makes its files in `folder`, which exists and belongs to the caller, and begins with what was
  // kept. `plan`, `keeper` and `loop` must outlive the result. Params: leased: the "ready …" text
  // of the interpreter that the keeper has already; nullopt = it has none. Errors: those of the
  // files; the text names them.
  static absl::StatusOr<std::unique_ptr<WarmStarts>> Create(
      EventLoop* loop, const LaunchPlan* plan, KeeperClient* keeper, std::string folder,
      EnvironmentLookup environment, const std::optional<std::string>& leased, Hooks hooks);

  // Completes a worker's request: its patience, and the variables of a learner.
  void Prepare(SpawnRequest* request);

  // From the keeper's callbacks.
  void OnStarted(uint64_t generation, uint32_t local_rank, pid_t pid, bool parked);
  // `why`: the worker's own error message, if known.
  void OnExited(uint64_t generation, const WorkerEnd& end);
  void OnSaid(const std::string& text);
  void OnEnded(const std::string& how);
  // No process of the node's workers is left.
  void OnEmpty();
  // A worker reports that its program can be started ahead. May be called again.
  void OnCanPark(uint32_t local_rank);
  // A worker reports that it goes on in its process when another one fails. May be called again.
  void OnCanRejoin();
  // For a node without workers, which learns from the kept file of another node with the same home.
  // Costs one stat(2); to be called now and then, because a network file system doesn't notify of
  // changes by other machines.
  void LookAround();
  // How the workers of the newest generation started, for people.
  struct Use {
    uint32_t warm = 0;
    uint32_t cold = 0;
    absl::Duration saved;       // how much longer each of the warm ones would have taken
    uint64_t parked_bytes = 0;  // memory of the fork server; 0 = none is ready
    std::string why_cold;       // "" = all were warm, or would be
  };
  Use use() const;
  // Whether use() is worth showing: the user asked for warm starts, or they have had an effect.
  bool shows() const {
    return wanted_ && (!plan_->warm.unasked || started_.warm > 0 || starter_.bytes_held() > 0);
  }

 private:
  struct Version {
    uint64_t inode = 0;
    int64_t seconds = 0;
    int64_t nanoseconds = 0;
    friend bool operator==(const Version&, const Version&) = default;
  };

  WarmStarts(EventLoop* loop, const LaunchPlan* plan, KeeperClient* keeper, std::string folder,
             EnvironmentLookup environment, Hooks hooks);

  absl::Status MakeFiles();
  void Begin(const std::optional<std::string>& leased);
  void WatchMemory();
  std::optional<Learned> ReadKept();
  std::string LackOfMemory() const;
  std::string LearnedPath(uint32_t local_rank) const;
  uint32_t learners() const;
  void ReadLearned();

  void Do(const std::vector<WarmEffect>& effects);
  void Do(const struct Park& effect);
  void Do(const struct Unpark& /*effect*/) { keeper_->Unpark(); }
  void Do(const Keep& effect);
  void Do(const Forget& effect);
  void Do(const WarmNote& effect) { hooks_.record(effect.event, effect.fields); }
  void Do(const NotifyOnce& effect);
  void OnHoldOver();
  absl::Status ParkIt();
  void NotifyIfNobodySaidSo();
  void CountStart(bool parked);
  void LookAtOffer(std::optional<int32_t> pid);
  void LearnThatItCanPark();

  EventLoop* loop_;
  const LaunchPlan* plan_;
  KeeperClient* keeper_;
  const std::string folder_;
  const EnvironmentLookup environment_;
  const Hooks hooks_;
  const std::string program_;  // file of the workers' program; "" = they run Python
  ParkOffers offers_;
  std::string can_park_;  // signature of the program that a worker last offered; "" = none was
  bool wanted_;           // fork servers are wanted: --warm, kept from before, or OnCanRejoin
  WarmStarter starter_;
  std::unique_ptr<Timer> hold_;  // for the starter's deadline
  bool running_ = false;         // workers were prepared since the last OnEmpty
  uint64_t generation_ = 0;      // the newest that was prepared
  bool restarted_ = false;       // there was a generation before it
  bool told_ = false;            // the user was notified that no worker has offered the program
  Instant prepared_;             // when the first worker of generation_ was
  Use started_;                  // of generation_; without parked_bytes
  uint32_t starting_ = 0;        // workers of generation_ that were prepared
  // Whether a worker of generation_ was forked, by local rank; empty once one has ended.
  std::map<uint32_t, bool> forked_;
  Version kept_version_;  // of the kept file when it was last read
  bool watches_memory_ = false;
  std::unique_ptr<PressureWatch> pressure_;  // null = not started, or the kernel has no PSI for us
  Fd written_;                               // inotify(7): a learner has written its imports
  std::unique_ptr<FdWatch> watch_;           // of written_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_WARM_STARTS_H_
