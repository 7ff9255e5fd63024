#include "launcher/agent/leftover_notices.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace ddprun::launcher {
namespace {

// How long to wait before the user is notified: most leftovers have ended by then.
constexpr absl::Duration kNoticeAfter = absl::Seconds(3);

std::string Describe(const LeftProcess& process) {
  const std::string of =
      process.local_rank < 0 ? "" : absl::StrCat(" of local rank ", process.local_rank);
  return absl::StrCat("'", process.command, "' (pid ", process.pid, of, ")");
}

// Names the first of `count` leftovers.
std::string Describe(const std::vector<LeftProcess>& named, size_t count) {
  const std::string more = count > 1 ? absl::StrCat(" and ", count - 1, " more") : "";
  return absl::StrCat(Describe(named.front()), more);
}

}  // namespace

SweepOptions LeftoverNotices::OptionsOf(const SweepGroup& effect) {
  const bool done = effect.after == SweepGroup::After::kSuccess;
  SweepOptions options{.spared = effect.spared, .strict = !done};
  if (done) {
    options.leftovers_time = plan_.after_success;
    options.leftovers_stay = plan_.mode == LeftoverPlan::Mode::kSpare;
  } else if (effect.after == SweepGroup::After::kStop) {
    options.leftovers_time = LeftoverPlan::kTimeAfterFailure;
  }
  time_ = options.leftovers_time;
  stay_ = options.leftovers_stay;
  return options;
}

void LeftoverNotices::OnLeft(const std::vector<LeftProcess>& named, uint32_t count) {
  named_ = named;
  count_ = count;
  write_("leftovers",
         {{"count", count}, {"processes", named.empty() ? "" : Describe(named, named.size())}});
}

void LeftoverNotices::OnKilled(const LeftProcess& process, absl::Duration after,
                               const std::string& why) {
  write_("leftover_killed", {{"worker_pid", process.pid},
                             {"local_rank", process.local_rank},
                             {"command", process.command},
                             {"after_ms", absl::ToInt64Milliseconds(after)},
                             {"why", why}});
  if (killed_.empty()) loop_->Post([this] { NotifyKilled(); });
  const std::string time =
      why == "was still there"
          ? absl::StrCat(" ", absl::FormatDuration(absl::Trunc(after, absl::Seconds(1))),
                         " after the workers' end")
          : ", which a restart may need";
  killed_.push_back(absl::StrCat(Describe(process), ", left behind by its worker: it ", why, time));
}

// Kills that come together are one line, which names the first.
void LeftoverNotices::NotifyKilled() {
  const std::vector<std::string> killed = std::exchange(killed_, {});
  if (killed.empty()) return;
  const std::string more =
      killed.size() > 1 ? absl::StrCat(", and ", killed.size() - 1, " more") : "";
  Notify(absl::StrCat("killed ", killed.front(), more, " (--leftovers)"));
}

void LeftoverNotices::OnGone() {
  count_ = 0;
  notice_.reset();
  NotifyKilled();
}

bool LeftoverNotices::AwaitEnd() {
  const bool names = !named_.empty();
  if (stay_) {
    if (names) {
      Notify(absl::StrCat("left running: ", Describe(named_, count_), " (--leftovers spare)"));
    }
    return false;
  }
  if (!names || notice_ != nullptr) return true;
  notice_ = std::make_unique<Timer>(loop_, [this] {
    Notify(absl::StrCat("the workers have ended; waiting up to ", absl::FormatDuration(time_),
                        " for ", Describe(named_, count_),
                        ", left behind by its worker (--leftovers; Ctrl-C ends the wait)"));
  });
  notice_->Arm(loop_->Now() + kNoticeAfter);
  return true;
}

}  // namespace ddprun::launcher
