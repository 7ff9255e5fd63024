#include "rendezvous/core/job/state_machine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rendezvous/core/job/job.h"

namespace ddprun::rendezvous {

struct StateMachine::Impl {
  Impl(Term term, std::string token, bool keeps) : job(term, std::move(token), keeps) {}
  Impl(Instant now, JobRecord record, absl::Duration elapsed, std::string token)
      : job(now, std::move(record), elapsed, std::move(token)) {}
  Job job;
};

StateMachine::StateMachine(Term term, std::string token, bool keeps)
    : impl_(std::make_unique<Impl>(term, std::move(token), keeps)) {}

StateMachine::StateMachine(Instant now, JobRecord record, absl::Duration elapsed, std::string token)
    : impl_(std::make_unique<Impl>(now, std::move(record), elapsed, std::move(token))) {}

StateMachine::~StateMachine() = default;

std::vector<Effect> StateMachine::Step(Instant now, const Event& event) {
  return impl_->job.Step(now, event);
}

Instant StateMachine::NextDeadline() const { return impl_->job.NextDeadline(); }

JobRecord StateMachine::TakeRecord(Instant now) { return impl_->job.TakeRecord(now); }

JobView StateMachine::View(Instant now) const { return impl_->job.View(now); }

const std::deque<GenerationView>& StateMachine::generations() const {
  return impl_->job.generations();
}

void StateMachine::CheckInvariants() const {
  const std::string broken = impl_->job.BrokenInvariant();
  if (broken.empty()) return;
  DDPRUN_CHECK(broken.empty(), absl::StrCat(broken, "\n", impl_->job.DebugString()));
}

}  // namespace ddprun::rendezvous
