#include "rendezvous/core/job/effect_queue.h"

#include <utility>
#include <variant>

#include "base/check.h"

namespace ddprun::rendezvous {
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
