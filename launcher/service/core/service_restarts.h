#ifndef DDPRUN_LAUNCHER_SERVICE_CORE_SERVICE_RESTARTS_H_
#define DDPRUN_LAUNCHER_SERVICE_CORE_SERVICE_RESTARTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// Whether a rendezvous service that died is started again, and when.
//
//   serving ─OnDeath─► missing ─OnServing─► serving
//                      │     ▲
//                      └─────┘ OnFailedStart: after a pause
//
// Given up is a service that dies too often, and one that can't be started again for as long as
// agents do without it. Pure; one thread.
class ServiceRestarts {
 public:
  // The service may die so often within this time; once more, and it is given up.
  static constexpr size_t kDeathsMax = 5;
  static constexpr absl::Duration kDeathsWindow = absl::Seconds(10);
  // After a start that failed; doubles.
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
  static constexpr absl::Duration kLongestPause = absl::Seconds(1);

  struct Decision {
    Instant start_at = Instant::Infinite();  // infinite: it is given up
    std::string why;                         // it is given up: "… and is not started again"
    // Before a pause: what the user is to know, once for each reason.
    std::optional<std::string> tell;
  };
  struct Back {
    absl::Duration missing;  // how long it was
    uint64_t times = 0;      // that it was started again so far, with this one
  };

  // `loss`: how long an agent does without its service (--service_loss_timeout).
  explicit ServiceRestarts(absl::Duration loss, absl::Duration deaths_window = kDeathsWindow)
      : loss_(loss), deaths_window_(deaths_window) {}

  // It served, and died at `now`. `how`: "was killed by SIGKILL".
  Decision OnDeath(Instant now, std::string how);
  // A start failed at `now`. Requires: it is missing.
  Decision OnFailedStart(Instant now, const std::string& error);
  // It serves again. Requires: it was missing.
  Back OnServing(Instant now);

  bool is_missing() const { return !missing_since_.is_infinite(); }
  // Of the last death.
  const std::string& how() const { return how_; }

  // What doesn't hold of the fields below; "" = all of it does.
  std::string BrokenInvariant() const;

 private:
  absl::Duration loss_;
  absl::Duration deaths_window_;
  std::deque<Instant> deaths_;                   // the last kDeathsMax, in their order
  Instant missing_since_ = Instant::Infinite();  // infinite: it serves
  absl::Duration pause_ = kFirstPause;           // the next; the first while it serves
  uint64_t times_ = 0;
  std::string how_;
  std::string told_;  // the last error that the user was told; "" while it serves
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SERVICE_CORE_SERVICE_RESTARTS_H_
