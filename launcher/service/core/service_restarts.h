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
// A service is given up if it dies too often, or can't be started again for as long as agents go on
// without it. Pure; one thread.
class ServiceRestarts {
 public:
  // How often the service may die within kDeathsWindow; after one more death it is given up.
  static constexpr size_t kDeathsMax = 5;
  static constexpr absl::Duration kDeathsWindow = absl::Seconds(10);
  // The pause after a failed start; doubles.
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
  static constexpr absl::Duration kLongestPause = absl::Seconds(1);

  struct Decision {
    Instant start_at = Instant::Infinite();  // infinite = the service is given up
    std::string why;                         // if given up: "… and is not started again"
    // Before a pause: a text for the user, once for each reason.
    std::optional<std::string> tell;
  };
  struct Back {
    absl::Duration missing;  // how long the service was missing
    uint64_t times = 0;      // restarts so far, this one included
  };

  // `loss`: how long an agent goes on without its service (--service_loss_timeout).
  explicit ServiceRestarts(absl::Duration loss, absl::Duration deaths_window = kDeathsWindow)
      : loss_(loss), deaths_window_(deaths_window) {}

  // The service died at `now`. `how`: "was killed by SIGKILL".
  Decision OnDeath(Instant now, std::string how);
  // A start failed at `now`. Requires: is_missing().
  Decision OnFailedStart(Instant now, const std::string& error);
  // The service serves again. Requires: is_missing().
  Back OnServing(Instant now);

  bool is_missing() const { return !missing_since_.is_infinite(); }
  // How the service died last.
  const std::string& how() const { return how_; }

  // Which invariant of the fields below is broken; "" = none.
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
