#ifndef DDPRUN_LAUNCHER_KEEPER_KEEPER_LOOP_H_
#define DDPRUN_LAUNCHER_KEEPER_KEEPER_LOOP_H_

#include <poll.h>
#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/instant.h"
#include "ddprun/keeper/v1/keeper.pb.h"
#include "launcher/core/attentive_clock.h"
#include "launcher/keeper/agent_seat.h"
#include "launcher/keeper/channel.h"
#include "launcher/keeper/leftovers.h"
#include "launcher/keeper/output_rest.h"
#include "launcher/keeper/parked_process.h"

namespace ddprun::launcher {

// The keeper process's main loop, until its tree is empty: one thread, one ppoll(2) over the
// channel, SIGCHLD, the agent's pidfd and the starts that are under way.
//
// How trees are emptied. The keeper is a subreaper, so an orphan below it becomes its direct child.
// The loop signals only direct children that it has not reaped, and their process groups; such a
// pid or group can't belong to a stranger. Each death makes orphans or none; when waitid(2) says
// ECHILD, nothing is left, even of what double-forked or called setsid(2) (keeper_loop.cc has an
// example). If a tree forks faster than it dies, its cgroup is killed as a whole, where there is
// one.
//
// Three kinds of children stay when a sweep has emptied the rest: the fork server (Park), workers
// that the sweep spares with the orphans of their trees, and leftovers of ended workers that have
// time (Leftovers). While one is there, waitid(2) never says ECHILD, and the list of children is
// read instead.
//
// Invariants: only this loop reaps; a worker is in workers_ exactly while its process is not
// reaped. Requires: SIGCHLD is blocked and has its default disposition; the process is a subreaper.
class KeeperLoop {
 public:
  KeeperLoop(Fd channel, AgentSeat seat, Fd child_signals);

  // Returns when the agent is gone or was silent too long, and nothing is left below us.
  void Run();
  // The current ones, which an agent that adopts the keeper replaces.
  const KeeperOptions& options() const { return seat_.options; }

 private:
  // A variable in the environment of each worker, which its descendants inherit.
  static constexpr const char* kTagVariable = "DDPRUN_WORKER_TAG";

  struct Worker {
    uint64_t generation = 0;
    uint32_t local_rank = 0;
    Fd start_report;              // valid until exec(2) succeeded or failed
    bool start_failed = false;    // StartFailed was sent, so no Exited follows
    uint64_t tag_generation = 0;  // the generation it was started in, which its tag keeps for life
  };
  using Workers = std::map<pid_t, Worker>;

  void Wait();
  Instant NextDeadline() const;
  void CheckSilence();

  void ReadCommands();
  void OnCommand(const keeper::v1::Command& command, std::vector<Fd> fds);
  void OnSpawn(const keeper::v1::Spawn& spawn, std::vector<Fd> fds);
  void OnSignal(const keeper::v1::Signal& command);
  void OnSweep(const keeper::v1::Sweep& sweep);
  void OnKeep(const keeper::v1::Keep& keep);
  void OnPark(const keeper::v1::Park& park);
  void OnAdopt(const keeper::v1::Adopt& adopt, std::vector<Fd> fds);

  void Exec(ParkedStart start);
  void LookAtParked();
  void CancelParked(std::optional<uint64_t> generation, const char* stage, int error);
  void OnParkedDead(const siginfo_t& child);
  void SendParkedEnd(const ParkedProcess::End& end);

  void SettleStart(pid_t pid, Worker* worker);
  void SendStarted(pid_t pid, const Worker& worker, bool parked);
  void ReapChildren();
  void OnStopped(const siginfo_t& child);
  void OnDead(const siginfo_t& child);
  void OnWorkerDead(const siginfo_t& child, Workers::iterator found);

  bool OthersThanSparedLeft() const;
  bool sweeping() const { return agent_lost_ || !sweeps_.empty(); }
  void KillAll();
  void KillInSweep(pid_t child);
  uint32_t KillLeftovers();
  bool KillLeftover(pid_t child);
  void LimitLeftovers(absl::Duration time);
  void ReportLeftoversGone();
  std::string OriginOf(pid_t child) const;
  void Outlast();
  bool IsLeftover(pid_t child) const;
  bool IsSpared(pid_t child) const;
  std::string TagOf(uint64_t generation, uint32_t local_rank) const;
  std::string TagOf(const Worker& worker) const;
  void FinishSweep();

  void LoseAgent();
  void Send(const keeper::v1::Event& event);
  void SendStartFailed(uint64_t generation, uint32_t local_rank, const char* stage, int error);

  const Fd channel_;
  AgentSeat seat_;
  const Fd child_signals_;        // signalfd of SIGCHLD
  const std::string tag_prefix_;  // "<our pid>."

  SendQueue sends_;
  Workers workers_;
  ParkedProcess parked_;
  std::set<pid_t> ended_sessions_;  // sessions of workers that ended since the last Empty
  std::set<uint64_t> sweeps_;       // generations whose Empty is owed
  std::set<pid_t> spared_;          // live workers that the newest sweep leaves alone
  Leftovers leftovers_;             // empty with kills_leftovers
  bool leftovers_stay_ = false;     // leftovers outlive the agent, which ends well
  bool leftovers_told_ = false;     // an Empty has named some, and LeftoversGone is owed
  uint32_t leftovers_killed_ = 0;   // since the last Empty; kKillsTold of them were reported
  uint32_t killed_ = 0;             // processes other than workers, since the last Empty
  int kill_rounds_ = 0;             // rounds of the current sweep
  bool children_left_ = false;      // as of the last ReapChildren()
  bool reap_again_ = false;         // the next round must not wait
  bool agent_lost_ = false;
  AttentiveClock clock_;
  Instant asked_ = Instant::Infinite();  // when the newest Wait() should have ended
  Instant silence_deadline_;             // of clock_
  OutputRest output_rest_;               // of the workers since the last Empty
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_KEEPER_LOOP_H_
