#include "launcher/core/supervisor/standby_notice.h"

#include "absl/time/time.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kNotifyAfter = absl::Seconds(1);

}  // namespace

bool StandbyNotice::OnStandby(Instant now, const std::string& reason, bool spare) {
  spare_ = spare;
  if (reason == reason_) return false;
  reason_ = reason;
  tell_at_ = reason.empty() ? Instant::Infinite() : now + kNotifyAfter;
  return true;
}

std::optional<std::string> StandbyNotice::OnTimer(Instant now) {
  if (now < tell_at_) return std::nullopt;
  tell_at_ = Instant::Infinite();
  return reason_;
}

}  // namespace ddprun::launcher
