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
#include "launcher/warm/core/park_offers.h"
#include "launcher/warm/core/warm_starter.h"
#include "launcher/warm/memory.h"

namespace ddprun::launcher {

// Why the workers of a plan can't start warm; "" = they can.
std::string WhyCold(const LaunchPlan& plan);

// Starts workers warm, as its WarmStarter decides: has the keeper park an interpreter, and workers
// tell what to import; or their own program, when a worker has told that it can be. Of a plan that
// is for_survivors it does so from when a worker has told that it goes on in its process, too. It
// says nothing to a user who hasn't asked for it.
// Threads: the loop's.
//
// for_survivors is the default, because there all workers wait for the one that starts; where all
// are started anew, they wait longer for the checkpoint and each other. What counts is that a
// worker waits for its generation's end, not the program's option, which the program may set
// itself.
class WarmStarts {
 public:
  struct Hooks {
    std::function<void(const std::string& event,
                       const std::vector<std::pair<std::string, std::string>>& fields)>
        record;
    std::function<void(const std::string& text)> tell;  // a line for the user
    // Completes the environment of workers, and so that of the interpreter they come from.
    std::function<void(std::vector<std::string>* environment)> prepare;
    // The workers have behind them what they import, or what they import was kept. May come again;
    // null = nobody asks.
    std::function<void()> settled;
  };

  // Makes its files in `folder`, which must be there and is removed by whoever has made it, and
  // begins with what was kept. `leased`: what the interpreter said that the keeper has already
  // ("ready …"); none = it has none. `plan`, `keeper` and `loop` must outlive it.
  // Errors: of the files; the text names them.
  static absl::StatusOr<std::unique_ptr<WarmStarts>> Create(
      EventLoop* loop, const LaunchPlan* plan, KeeperClient* keeper, std::string folder,
      EnvironmentLookup environment, const std::optional<std::string>& leased, Hooks hooks);

  // Completes what a worker is started with.
  void Prepare(SpawnRequest* request);

  // From the keeper's callbacks.
  void OnStarted(uint64_t generation, uint32_t local_rank, pid_t pid, bool parked);
  // `why`: what the worker said of its end, as far as it is known.
  void OnExited(const WorkerExit& exit, absl::string_view why);
  void OnSaid(const std::string& text);
  void OnEnded(const std::string& how);
  // No process of the node's workers is left.
  void OnEmpty();
  // A worker says that its program can be started ahead. May come again.
  void OnCanPark(uint32_t local_rank);
  // A worker says that it goes on in its process when another one fails. May come again.
  void OnCanRejoin();
  // A node without workers has nobody to learn from: looks whether another one's have told, in a
  // home that they share. Cheap; to be called now and then, because no file system of a network
  // says what other machines do.
  void LookAround();
  // How workers start, for people.
  struct Use {
    uint32_t warm = 0;  // of the newest generation
    uint32_t cold = 0;
    absl::Duration saved;       // what each of the warm ones would have imported for longer
    uint64_t parked_bytes = 0;  // 0 = none is ready
    std::string why_cold;       // "" = all were warm, or would be
  };
  Use use() const;
  // Whether there is anything to tell of it: somebody has asked for it, or has got something of it.
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
  const std::string program_;  // file of the workers' own; "" = they run Python
  ParkOffers offers_;
  std::string can_park_;  // signature of the one that has said so last; "" = none has
  bool wanted_;           // what was kept, or learned, is of use
  WarmStarter starter_;
  std::unique_ptr<Timer> hold_;  // for the starter's deadline
  bool running_ = false;         // the node has workers, or did when it last looked
  uint64_t generation_ = 0;      // the newest that was prepared
  bool restarted_ = false;       // there was one before it
  bool told_ = false;            // that nobody has said that the program can be parked
  Instant prepared_;             // when its first worker was
  Use started_;                  // of its workers; not the parked one's fields
  uint32_t starting_ = 0;        // workers of it, those that have started among them
  // Of its workers, those that were forked, by local rank; until the first one has ended.
  std::map<uint32_t, bool> forked_;
  Version kept_version_;  // of the file that was read last
  bool watches_memory_ = false;
  std::unique_ptr<PressureWatch> pressure_;  // null = the kernel doesn't tell us, or not yet
  Fd written_;                      // inotify(7): a worker has written down what it imported
  std::unique_ptr<FdWatch> watch_;  // while that is wanted
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_WARM_STARTS_H_
