#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_STANDBY_NOTICE_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_STANDBY_NOTICE_H_

#include <optional>
#include <string>

#include "base/instant.h"

namespace ddprun::launcher {

// What this node waits for. The user is notified when a wait has lasted for a second, once for each
// reason.
// Pure; one thread.
class StandbyNotice {
 public:
  // Params: reason: "" = none; spare: the job runs without this node. Returns: whether the reason
  // is a new one.
  bool OnStandby(Instant now, const std::string& reason, bool spare = false);
  // A generation begins: the wait is over.
  void OnAssigned() { *this = StandbyNotice(); }
  // The text for the user, when it is due.
  std::optional<std::string> OnTimer(Instant now);
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return tell_at_; }
  // The node waits while others work.
  bool is_spare() const { return spare_; }
  // The service has said that the node has to wait.
  bool waits() const { return !reason_.empty(); }

 private:
  std::string reason_;                     // "" = the node doesn't wait
  bool spare_ = false;                     // only while the node waits
  Instant tell_at_ = Instant::Infinite();  // infinite once the user was notified
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_STANDBY_NOTICE_H_
