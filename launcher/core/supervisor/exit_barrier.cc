#include "launcher/core/supervisor/exit_barrier.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace ddprun::launcher {

void ExitBarrier::OnAssigned(uint32_t group_rank) {
  group_rank_ = group_rank;
  Cancel();
}

void ExitBarrier::Begin(Instant now, bool hosts_service) {
  DDPRUN_CHECK(end_.is_infinite(), "a generation ends well once");
  if (hosts_service || group_rank_ == 0) return;
  end_ = now + settings_.timeout;
}

bool ExitBarrier::OnTimer(Instant now) {
  if (now < end_) return false;
  Cancel();
  return true;
}

std::string ExitBarrier::Why() const {
  return absl::StrCat(
      "all workers of this node ended well; it does not wait for the other nodes any longer "
      "(--exit_barrier_timeout ",
      absl::FormatDuration(settings_.timeout), ")");
}

}  // namespace ddprun::launcher
