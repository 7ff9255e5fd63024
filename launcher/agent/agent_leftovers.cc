// The agent's side of processes that workers leave behind (--leftovers): how long they may run,
// what the user reads of them, and the wait for them at the end.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "launcher/agent/agent.h"

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

SweepOptions Agent::SweepOptionsOf(const SweepGroup& effect) {
  const bool done = effect.after == SweepGroup::After::kSuccess;
  SweepOptions options{.spared = effect.spared, .strict = !done};
  if (done) {
    options.leftovers_time = plan_.leftovers.after_success;
    options.leftovers_stay = plan_.leftovers.mode == LeftoverPlan::Mode::kSpare;
  } else if (effect.after == SweepGroup::After::kStop) {
    options.leftovers_time = LeftoverPlan::kTimeAfterFailure;
  }
  leftovers_time_ = options.leftovers_time;
  leftovers_stay_ = options.leftovers_stay;
  return options;
}

void Agent::AddLeftoverCallbacks(KeeperClient::Callbacks* callbacks) {
  callbacks->on_left = [this](const std::vector<LeftProcess>& named, uint32_t count) {
    left_named_ = named;
    left_count_ = count;
    Write("leftovers",
          {{"count", count}, {"processes", named.empty() ? "" : Describe(named, named.size())}});
  };
  callbacks->on_leftovers_gone = [this] { OnLeftoversGone(); };
  callbacks->on_leftover_killed = [this](const LeftProcess& process, absl::Duration after,
                                         const std::string& why) {
    Write("leftover_killed", {{"worker_pid", process.pid},
                              {"local_rank", process.local_rank},
                              {"command", process.command},
                              {"after_ms", absl::ToInt64Milliseconds(after)},
                              {"why", why}});
    if (leftovers_killed_.empty()) loop_->Post([this] { NotifyLeftoversKilled(); });
    const std::string time =
        why == "was still there"
            ? absl::StrCat(" ", absl::FormatDuration(absl::Trunc(after, absl::Seconds(1))),
                           " after the workers' end")
            : ", which a restart may need";
    leftovers_killed_.push_back(
        absl::StrCat(Describe(process), ", left behind by its worker: it ", why, time));
  };
}

// Kills that come together are one line, which names the first.
void Agent::NotifyLeftoversKilled() {
  const std::vector<std::string> killed = std::exchange(leftovers_killed_, {});
  if (killed.empty()) return;
  const std::string more =
      killed.size() > 1 ? absl::StrCat(", and ", killed.size() - 1, " more") : "";
  Notify(absl::StrCat("killed ", killed.front(), more, " (--leftovers)"));
}

void Agent::OnLeftoversGone() {
  left_count_ = 0;
  leftovers_notice_.reset();
  NotifyLeftoversKilled();
  if (exit_.has_value()) ContinueEnd();
}

// The job is over on this node, and leftovers have time to end. A signal ends the wait (OnSignal).
void Agent::AwaitLeftovers() {
  const bool names = !left_named_.empty();
  if (leftovers_stay_) {
    if (names) {
      Notify(absl::StrCat("left running: ", Describe(left_named_, left_count_),
                          " (--leftovers spare)"));
    }
    return loop_->Stop();
  }
  if (!names || leftovers_notice_ != nullptr) return;
  leftovers_notice_ = std::make_unique<Timer>(loop_.get(), [this] {
    Notify(absl::StrCat("the workers have ended; waiting up to ",
                        absl::FormatDuration(leftovers_time_), " for ",
                        Describe(left_named_, left_count_),
                        ", left behind by its worker (--leftovers; Ctrl-C ends the wait)"));
  });
  leftovers_notice_->Arm(loop_->Now() + kNoticeAfter);
}

}  // namespace ddprun::launcher
