#ifndef DDPRUN_LAUNCHER_AGENT_LEFTOVER_NOTICES_H_
#define DDPRUN_LAUNCHER_AGENT_LEFTOVER_NOTICES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/supervisor/supervisor_events.h"
#include "launcher/keeper/keeper_client.h"
#include "nlohmann/json.hpp"

namespace ddprun::launcher {

// The agent's side of processes that workers leave behind (--leftovers): how long they may run,
// what the user reads of them, and the wait for them at the job's end. The keeper finds and kills
// them. Threads: the loop's.
class LeftoverNotices {
 public:
  // Writes an event to the event log.
  using WriteEvent = std::function<void(const std::string& event, const nlohmann::json& fields)>;

  LeftoverNotices(EventLoop* loop, const LeftoverPlan& plan, WriteEvent write)
      : loop_(loop), plan_(plan), write_(std::move(write)) {}
  LeftoverNotices(const LeftoverNotices&) = delete;
  LeftoverNotices& operator=(const LeftoverNotices&) = delete;

  // What the keeper does about leftovers in this sweep. Counts for the waits that follow.
  SweepOptions OptionsOf(const SweepGroup& effect);

  // The keeper's reports. `count` processes have time to end; `named`: the first of them. One was
  // killed `after` that time had begun. All are gone.
  void OnLeft(const std::vector<LeftProcess>& named, uint32_t count);
  void OnKilled(const LeftProcess& process, absl::Duration after, const std::string& why);
  void OnGone();

  // How many processes have time to end.
  uint32_t count() const { return count_; }
  // The job is over on this node. Requires: count() > 0. Returns: whether the agent waits for
  // OnGone(); false = the processes stay when the agent has ended.
  bool AwaitEnd();

 private:
  void NotifyKilled();

  EventLoop* const loop_;
  const LeftoverPlan plan_;
  const WriteEvent write_;
  uint32_t count_ = 0;
  std::vector<LeftProcess> named_;
  std::vector<std::string> killed_;  // since the user was last notified
  std::unique_ptr<Timer> notice_;    // when to print that the agent waits for some
  absl::Duration time_;              // of the last sweep
  bool stay_ = false;                // of the last sweep
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_LEFTOVER_NOTICES_H_
