#include "rendezvous/core/generation/preemption.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun::rendezvous {

namespace {

// After this many lives, the numbers of rounds repeat; and the bits for the rounds of one life.
constexpr uint64_t kLives = 1U << 15;
constexpr int kRoundBits = 16;

}  // namespace

Preemption::Preemption(uint64_t life)
    : life_(life), stop_(static_cast<uint32_t>(life % kLives) << kRoundBits) {}

void Preemption::Open() { *this = Preemption(life_); }

void Preemption::Recover(std::string taken, bool takes_service) {
  taken_ = std::move(taken);
  takes_service_ = takes_service;
}

Preemption::Action Preemption::Announce(Instant now, const std::string& host,
                                        const Preempt& preempt,
                                        std::optional<std::set<uint32_t>> agreeing) {
  std::string why =
      absl::StrCat(host, preempt.drained ? " is " : " is preempted: ", preempt.reason);
  if (!preempt.drained) NoteLeft(why);
  takes_service_ = takes_service_ || preempt.ends_job;
  if (!agreeing) return Action::kNone;
  if (stop_.active()) {
    stop_.Hasten(now + preempt.deadline);
    return Action::kNone;
  }
  why_ = std::move(why);
  trigger_ = preempt.drained ? "drained" : "preempted";
  stop_.Begin(now, now + preempt.deadline, *std::move(agreeing));
  return Action::kAsk;
}

void Preemption::NoteLeft(const std::string& reason) {
  if (taken_.empty()) taken_ = reason;
}

Preemption::Action Preemption::Add(Instant now, uint32_t group_rank, const StopPrepared& prepared) {
  return stop_.Add(now, group_rank, prepared.round, prepared.look);
}

Preemption::Action Preemption::Drop(Instant now, uint32_t group_rank) {
  return stop_.Drop(now, group_rank);
}

Preemption::Action Preemption::OnTimer(Instant now) { return stop_.OnTimer(now); }

void Preemption::BeginClosing() {
  if (stop_.active()) stop_.Reset();
}

bool Preemption::Abandon() {
  if (!stop_.committed()) return false;
  stop_.Reset();
  return true;
}

PrepareStop Preemption::Question(Generation generation) const {
  return {.generation = generation, .round = stop_.round(), .step = stop_.step()};
}

std::optional<std::string> Preemption::EndsJob(const JobSpec& spec, uint32_t left) const {
  if (taken_.empty()) return std::nullopt;
  if (takes_service_) return taken_;
  if (left >= spec.nodes_min) return std::nullopt;
  return absl::StrCat(taken_, "; ", CountText(left, "node"), left == 1 ? " is" : " are",
                      " left of at least ", spec.nodes_min);
}

std::string Preemption::BrokenInvariant() const {
  std::string broken = stop_.BrokenInvariant();
  if (!broken.empty()) return broken;
  const bool any = stop_.active() || stop_.committed();
  if (any && (why_.empty() || trigger_.empty())) return "a stop step for no reason";
  return "";
}

}  // namespace ddprun::rendezvous
