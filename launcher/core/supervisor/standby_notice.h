#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_STANDBY_NOTICE_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_STANDBY_NOTICE_H_

#include <optional>
#include <string>

#include "base/instant.h"

namespace ddprun::launcher {

// What this node waits for: told to the user when it lasts for a second, and each reason once.
// Pure; one thread.
class StandbyNotice {
 public:
  // Params: reason: "" = there is none to tell; spare: the job runs without this node. Returns:
  // whether the reason is a new one.
  bool OnStandby(Instant now, const std::string& reason, bool spare = false);
  // A generation begins: the wait is over.
  void OnAssigned() { *this = StandbyNotice(); }
  // What the user is to know, when it is time.
  std::optional<std::string> OnTimer(Instant now);
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return tell_at_; }
  // It waits, and others work.
  bool is_spare() const { return spare_; }
  // It waits: the service has said so.
  bool waits() const { return !reason_.empty(); }

 private:
  std::string reason_;                     // "" = it doesn't wait
  bool spare_ = false;                     // only while it waits
  Instant tell_at_ = Instant::Infinite();  // infinite once it was told
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_STANDBY_NOTICE_H_
