#include "launcher/warm/core/warm_starter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {

std::vector<WarmEffect> WarmStarter::Begin(Instant now, std::optional<Learned> kept,
                                           bool preloads) {
  if (!kept.has_value() && !preloads) return {};
  if (kept.has_value()) learned_ = *std::move(kept);
  return Load(now);
}

std::vector<WarmEffect> WarmStarter::Load(Instant now) {
  state_ = State::kLoading;
  loading_since_ = now;
  refusing_ = false;
  stale_ = false;
  return {Park{}};
}

std::vector<WarmEffect> WarmStarter::OnLearned(Instant now, Learned learned) {
  if (state_ != State::kUnlearned) return {};
  learned_ = std::move(learned);
  std::vector<WarmEffect> effects = {
      WarmNote{"warm_learned", {{"modules", absl::StrCat(learned_.module_count())}}}, Keep{}};
  const std::vector<WarmEffect> load = Load(now);
  effects.insert(effects.end(), load.begin(), load.end());
  return effects;
}

std::vector<WarmEffect> WarmStarter::OnSaid(Instant now, absl::string_view text) {
  if (state_ != State::kLoading) return {};
  if (text == "stale") {
    stale_ = true;
    return {};
  }
  if (absl::ConsumePrefix(&text, "refuse ")) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits(' ', 1));
    if (learned_.IsRefused(parts.first)) return {};
    refusing_ = true;
    learned_.refused.push_back({std::string(parts.first), std::string(parts.second)});
    return {WarmNote{"warm_refused",
                     {{"module", std::string(parts.first)}, {"why", std::string(parts.second)}}}};
  }
  if (!absl::ConsumePrefix(&text, "ready ")) return {};
  state_ = State::kReady;
  return {WarmNote{"warm_ready",
                   {{"modules", absl::StrCat(learned_.module_count())},
                    {"import_ms", std::string(text)},
                    {"ms", absl::StrCat(absl::ToInt64Milliseconds(now - loading_since_))}}},
          Keep{}};
}

std::vector<WarmEffect> WarmStarter::OnEnded(Instant now, absl::string_view how) {
  if (state_ == State::kOff || state_ == State::kUnlearned) return {};
  if (std::exchange(stale_, false)) {
    state_ = State::kUnlearned;
    learned_ = Learned();
    return {Forget{}, WarmNote{"warm_stale", {}}};
  }
  if (std::exchange(refusing_, false)) {
    if (++refusals_ <= kRefusalsMax) return Load(now);
    return GiveUp(absl::StrCat("importing ahead met ", learned_.refused.size(),
                               " modules that can't be, '", learned_.refused.back().module,
                               "' the last (it ", learned_.refused.back().why, ")"));
  }
  if (++deaths_ <= kDeathsMax) {
    std::vector<WarmEffect> effects = {WarmNote{"warm_lost", {{"how", std::string(how)}}}};
    const std::vector<WarmEffect> load = Load(now);
    effects.insert(effects.end(), load.begin(), load.end());
    return effects;
  }
  return GiveUp(
      absl::StrCat("the interpreter that waits to become workers ", how, " ", deaths_, " times"));
}

std::vector<WarmEffect> WarmStarter::GiveUp(std::string why) {
  if (state_ == State::kOff) return {};
  state_ = State::kOff;
  return {WarmNote{"warm_off", {{"why", why}}},
          TellOnce{absl::StrCat("workers start cold from now on: ", why)}};
}

absl::Duration WarmStarter::Patience(Instant now) const {
  switch (state_) {
    case State::kReady:
      return kForkPatience;
    case State::kLoading:
      // What is left of it; no start waits behind imports that stand still.
      return std::max(absl::ZeroDuration(), kLoadPatience - (now - loading_since_));
    case State::kUnlearned:
    case State::kOff:
      break;
  }
  return absl::ZeroDuration();
}

void WarmStarter::OnStarted(bool parked) {
  if (parked) deaths_ = 0;
}

std::string WarmStarter::BrokenInvariant() const {
  if (state_ == State::kReady && (refusing_ || stale_)) return "ready although it refused";
  if (deaths_ > kDeathsMax && state_ != State::kOff) return "more deaths than are borne";
  if (refusals_ > kRefusalsMax && state_ != State::kOff) return "more refusals than are borne";
  if (state_ == State::kUnlearned && !learned_.steps.empty()) return "learned while unlearned";
  return "";
}

}  // namespace ddprun::launcher
