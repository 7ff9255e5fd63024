#ifndef DDPRUN_LAUNCHER_DAEMON_DAEMON_H_
#define DDPRUN_LAUNCHER_DAEMON_DAEMON_H_

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "ddprun/daemon/v1/daemon.pb.h"
#include "launcher/daemon/core/spare_shelf.h"
#include "launcher/daemon/daemon_client.h"
#include "launcher/daemon/spare.h"
#include "launcher/warm/memory.h"

namespace ddprun::launcher {

struct DaemonConfig {
  std::string folder;       // DaemonFolder()
  uint64_t memory_max = 0;  // bytes, of all interpreters that wait together
  absl::Duration idle_max;  // infinite = they wait forever
};

// `ddprun daemon`: keeps interpreters ready between jobs, and gives each with its keeper to a job
// of its user on this machine. Threads: the loop's, the only one of the process, because wardens
// are forked.
//
// Keepers are given away, not interpreters, because a process can't choose its parent: a fork of
// the daemon's interpreter could be a child only of the daemon or of init, and every promise about
// teardown rests on the keeper being the parent of the workers. So keeper and interpreter are
// forked ahead together, and the agent adopts the keeper. A job gets an interpreter only if
// everything that a process inherits is equal. Variables count too, except for a short list,
// because no launcher knows which ones a C library reads.
class Daemon {
 public:
  // Errors: as TakeDaemonSeat(); of files in the folder.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(const DaemonConfig& config);
  ~Daemon();

  // Runs until TERM, INT, HUP or `ddprun daemon stop`. Waiting interpreters end with the daemon;
  // those of jobs don't.
  void Run();

 private:
  // A client; an agent stays connected as long as it lives.
  struct Visitor {
    Fd socket;
    std::unique_ptr<FdWatch> watch;
    uint64_t kind = 0;  // of its job; 0 = not a job
  };
  using Visitors = std::list<Visitor>;

  Daemon(DaemonConfig config, DaemonSeat seat, std::unique_ptr<EventLoop> loop);
  absl::Status Begin();
  void Accept();
  void Read(Visitors::iterator visitor);
  void OnRequest(const daemon::v1::Request& request, Visitor* visitor);
  void OnLease(const daemon::v1::Recipe& recipe, Visitor* visitor);
  void Leave(Visitors::iterator visitor);

  void Do(const std::vector<ShelfEffect>& effects);
  void Do(const StartSpare& effect);
  void Do(const EndSpare& effect);
  void OnReady(uint64_t id, uint64_t bytes);
  void OnGone(uint64_t id, const std::string& why);
  void NotifyOf(uint64_t id, const std::string& what);
  void Rearm() { timer_->Arm(shelf_.NextDeadline()); }
  void ReapWardens();
  daemon::v1::Shelf ShowShelf() const;

  const DaemonConfig config_;
  DaemonSeat seat_;
  std::unique_ptr<EventLoop> loop_;
  SpareShelf shelf_;
  std::map<uint64_t, daemon::v1::Recipe> recipes_;  // of the kinds on the shelf
  std::map<uint64_t, std::unique_ptr<Spare>> spares_;
  Visitors visitors_;
  std::unique_ptr<FdWatch> door_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<PressureWatch> pressure_;  // null = the kernel has no PSI for us
  std::vector<std::unique_ptr<SignalWatch>> signals_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_DAEMON_H_
