#include "launcher/service/core/service_restarts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ddprun::launcher {

ServiceRestarts::Decision ServiceRestarts::OnDeath(Instant now, std::string how) {
  DDPRUN_CHECK(!is_missing(), "a service dies once");
  DDPRUN_CHECK(deaths_.empty() || now >= deaths_.back(), "time went back");
  how_ = std::move(how);
  missing_since_ = now;
  while (!deaths_.empty() && now - deaths_.front() >= deaths_window_) deaths_.pop_front();
  if (deaths_.size() == kDeathsMax) {
    return {.why =
                absl::StrCat(how_, ", for the ", kDeathsMax + 1, "th time within ",
                             absl::FormatDuration(deaths_window_), ", and is not started again")};
  }
  deaths_.push_back(now);
  return {.start_at = now};
}

ServiceRestarts::Decision ServiceRestarts::OnFailedStart(Instant now, const std::string& error) {
  DDPRUN_CHECK(is_missing(), "only a missing service is started");
  const Instant bound = missing_since_ + loss_;
  const Instant next = now + pause_;
  if (next >= bound) {
    return {.why = absl::StrCat(how_, " and could not be started again within ",
                                absl::FormatDuration(loss_), " (--service_loss_timeout): ", error)};
  }
  pause_ = std::min(2 * pause_, kLongestPause);
  Decision decision{.start_at = next};
  if (error != std::exchange(told_, error)) {
    decision.tell = absl::StrCat("the rendezvous service ", how_,
                                 " and can't be started again yet: ", error, "; trying for ",
                                 absl::FormatDuration(absl::Ceil(bound - now, absl::Seconds(1))),
                                 " more; the workers go on");
  }
  return decision;
}

ServiceRestarts::Back ServiceRestarts::OnServing(Instant now) {
  DDPRUN_CHECK(is_missing(), "only a missing service comes back");
  const absl::Duration missing = now - missing_since_;
  missing_since_ = Instant::Infinite();
  pause_ = kFirstPause;
  told_.clear();
  return {.missing = missing, .times = ++times_};
}

std::string ServiceRestarts::BrokenInvariant() const {
  if (deaths_.size() > kDeathsMax) return "more deaths are kept than count";
  if (!std::is_sorted(deaths_.begin(), deaths_.end())) return "deaths are not in their order";
  if (pause_ < kFirstPause || pause_ > kLongestPause) return "a pause beyond its bounds";
  if (!is_missing() && pause_ != kFirstPause) return "a service that is there has a pause";
  if (!is_missing() && !told_.empty()) return "a service that is there can't be started";
  return "";
}

}  // namespace ddprun::launcher
