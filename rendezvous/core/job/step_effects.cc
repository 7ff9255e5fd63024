#include "rendezvous/core/job/step_effects.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"

namespace ddprun::rendezvous {

std::optional<uint64_t> NoteBudget::Take(Instant now) {
  const int64_t more = (now - refilled_) / kEvery;
  left_ = static_cast<uint32_t>(std::min<int64_t>(kBurst, left_ + more));
  refilled_ = left_ == kBurst ? now : refilled_ + more * kEvery;
  if (left_ == 0) {
    ++left_out_;
    return std::nullopt;
  }
  --left_;
  return std::exchange(left_out_, 0);
}

std::string NoteBudget::BrokenInvariant(Instant now) const {
  if (left_ > kBurst) return "more notes than a burst";
  return refilled_ > now ? "notes of the future" : "";
}

namespace {

template <typename Body>
const Body* BodyOf(const Effect& effect) {
  const Send* send = std::get_if<Send>(&effect);
  return send == nullptr ? nullptr : std::get_if<Body>(&*send->message);
}

bool MeasuresLease(const Effect& effect) {
  const Probe* probe = BodyOf<Probe>(effect);
  return probe != nullptr && !probe->in_order;
}

bool IsWelcome(const Effect& effect) { return BodyOf<Welcome>(effect) != nullptr; }

bool IsPersist(const Effect& effect) { return std::holds_alternative<Persist>(effect); }

}  // namespace

std::vector<Effect> EffectQueue::Add(std::vector<Effect> effects) {
  std::vector<Effect> overtaking;
  bool held = writing_;
  for (Effect& effect : effects) {
    held = held || IsPersist(effect);
    const bool welcome = IsWelcome(effect);
    const bool may_overtake = (welcome && recorded_) || MeasuresLease(effect);
    const bool overtakes =
        held && may_overtake && !unwelcomed_.contains(std::get<Send>(effect).stream);
    if (welcome && !overtakes) unwelcomed_.insert(std::get<Send>(effect).stream);
    (overtakes ? overtaking.emplace_back() : waiting_.emplace_back()) = std::move(effect);
  }
  return overtaking;
}

std::optional<Effect> EffectQueue::Take() {
  if (writing_ || waiting_.empty()) return std::nullopt;
  Effect effect = std::move(waiting_.front());
  waiting_.pop_front();
  if (IsWelcome(effect)) unwelcomed_.erase(std::get<Send>(effect).stream);
  if (IsPersist(effect)) {
    writing_ = true;
    std::erase_if(waiting_, IsPersist);
  }
  return effect;
}

std::vector<Effect> EffectQueue::EndWriting() {
  DDPRUN_CHECK(writing_, "no record is being written");
  writing_ = false;
  std::vector<Effect> overtaking;
  if (std::exchange(recorded_, true)) return overtaking;
  std::deque<Effect> others;
  for (Effect& effect : waiting_) {
    const bool overtakes = IsWelcome(effect) || MeasuresLease(effect);
    (overtakes ? overtaking.emplace_back() : others.emplace_back()) = std::move(effect);
  }
  waiting_ = std::move(others);
  unwelcomed_.clear();
  return overtaking;
}

}  // namespace ddprun::rendezvous
