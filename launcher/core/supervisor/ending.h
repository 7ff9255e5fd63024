#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_ENDING_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_ENDING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/instant.h"
#include "launcher/core/agent_settings.h"
#include "launcher/core/supervisor/supervisor_events.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/verdict.h"

namespace ddprun::launcher {

// How long a node that is done waits for the others (R8): for --exit_barrier_timeout, and if it has
// the service or rank 0's store, for as long as the others need them.
//
//   open ─Begin─► waiting ─OnTimer─► open, and the node leaves
//     ▲              │ OnAssigned, Cancel
//     └──────────────┘
//
// Pure; one thread.
class ExitBarrier {
 public:
  explicit ExitBarrier(ExitBarrierSettings settings) : settings_(settings) {}

  // A generation begins, in which this node has that group rank.
  void OnAssigned(uint32_t group_rank);
  // All workers of this node have ended well.
  void Begin(Instant now, bool hosts_service);
  // The workers have to run again.
  void Cancel() { end_ = Instant::Infinite(); }
  // True, once: the timeout is over.
  bool OnTimer(Instant now);
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return end_; }

  // Why the node leaves, for people.
  std::string Why() const;

 private:
  ExitBarrierSettings settings_;
  uint32_t group_rank_ = 0;            // of the newest generation
  Instant end_ = Instant::Infinite();  // finite only while waiting, and never of group rank 0
};

// How the last generation on this node ended, and whether its stores are gone.
// Pure; one thread.
class LastGeneration {
 public:
  // The next one begins.
  void OnAssigned() { succeeded_ = rendezvous::Generation(); }
  // No process of the generation is left.
  void OnEmpty(const GroupEmpty& event);
  // All workers here ended well, and this node waits for the others (R8).
  void Succeed(rendezvous::Generation generation);
  // A failure on another node restarts the generation. Returns: whether it had succeeded here.
  bool Withdraw(rendezvous::Generation generation);
  // The generation's stores are to be dropped. Returns: whether this is the first call for it.
  bool EndStores(rendezvous::Generation generation);

  bool succeeded() const { return succeeded_ != rendezvous::Generation(); }
  const std::optional<uint64_t>& step() const { return step_; }
  const std::optional<rendezvous::NodeTime>& time() const { return time_; }

 private:
  rendezvous::Generation succeeded_;          // 0 = none, or it was withdrawn
  rendezvous::Generation stores_ended_;       // never goes back
  std::optional<uint64_t> step_;              // highest that was marked
  std::optional<rendezvous::NodeTime> time_;  // how the workers spent the generation
};

// How an agent ends: why, with which status, and what is left to do before. The order is: the
// workers are gone; the service knows that we leave, unless a verdict came first; the stream is
// closed; the service, if it is our child, has sent the verdict to the other agents and ended. Each
// wait has a bound. The last one may be long if agents are late; the user is notified then, and a
// signal ends the wait. Pure; one thread.
class Ending {
 public:
  enum class Step {
    kWait,
    kSendLeave,     // then LeaveSent(), and ask again
    kFinishStream,  // half-close it
    kExit,
  };
  // What has ended so far.
  struct Progress {
    bool workers_gone = false;
    bool stream_open = false;
    bool stream_welcomed = false;
  };

  // Params: now: the agent's start.
  explicit Ending(EndingSettings settings, Instant now = Instant())
      : settings_(settings), service_until_(now + settings.late_agents) {}

  // The agent ends with this status, unless a later call changes it.
  void Begin(int status) { status_ = status; }
  // The verdict that the agent ends with. Only the first one counts.
  void OnVerdict(const rendezvous::Verdict& verdict);
  // The reason, for people, if there is no verdict.
  void Explain(std::string why) { why_ = std::move(why); }
  // The node leaves the job on a signal, or because its keeper died.
  void Leave(int signal_number);
  void LeaveWithoutKeeper();
  void LeaveSent() { leave_sent_ = true; }
  // The service is given up: its side of the stream won't be closed, even if the stream seems open.
  void GiveUpService() { service_given_up_ = true; }
  // Processes outlived SIGKILL. Returns: whether this is new and the stream can still report it.
  bool OnUnclean();
  void SetServiceRunning(bool running) { service_running_ = running; }

  // What comes next. Only once the agent ends.
  Step Next(Instant now, const Progress& progress);
  // True, once: the wait is over, so exit.
  bool OnTimer(Instant now);
  // How much longer the agent waits for its service; set once, when the service outlives its bound.
  std::optional<absl::Duration> TakeLateWait(Instant now);
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return bound_; }
  // The last effect, without `stopped`.
  Exit ToExit() const;

  // The exit status for a verdict: 0 for a success, and with --exit_code worker the first cause's.
  int StatusOf(const rendezvous::Verdict& verdict) const;
  bool is_leaving() const { return leaving_; }
  int leave_signal() const { return leave_signal_; }
  bool leave_was_sent() const { return leave_sent_; }
  bool has_verdict() const { return verdict_.has_value(); }
  bool gave_up_service() const { return service_given_up_; }
  int status() const { return status_; }
  const std::string& why() const { return why_; }

  // Which invariant of the fields below is broken; "" = none.
  std::string BrokenInvariant() const;

 private:
  EndingSettings settings_;
  int status_ = 0;  // 0 to 255
  std::optional<rendezvous::Verdict> verdict_;
  std::string why_;
  bool leaving_ = false;
  int leave_signal_ = 0;     // 0 = none; not 0 only if leaving_
  bool leave_sent_ = false;  // once in an agent's life
  bool unclean_ = false;
  bool service_given_up_ = false;
  bool service_running_ = false;  // as our child
  bool finish_sent_ = false;      // once in an agent's life
  bool awaits_service_ = false;   // waits for the service to end; only after the stream is closed
  Instant service_until_;         // until when the service may go on for agents that are late
  bool awaits_late_ = false;      // only with awaits_service_
  bool told_late_ = false;        // only with awaits_late_
  Instant bound_ = Instant::Infinite();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_ENDING_H_
