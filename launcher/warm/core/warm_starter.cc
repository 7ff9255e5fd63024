#include "launcher/warm/core/warm_starter.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"

// Workers as forks of one interpreter per node, which has imported what they import.
//
// Goal: after a kill nearly all of the time until the next step is Python's import of torch, on
// each rank. The interpreter imports what the first workers have imported (their diary, diary.py),
// and stops within its own startup (sitecustomize, with the workers' command line). A worker is a
// fork that returns from there, so Python itself runs the script. The keeper becomes its parent.
//
// Invariant: a start waits for nothing but the fork of an interpreter that is ready, which takes
// milliseconds. Where it isn't ready, or doesn't answer in time, exec(2) starts the worker. Only
// installed packages are imported ahead; a module that reads a variable which differs between
// ranks, or that a fork can't carry, is found by a trial (trial.py). The memory is given up when
// the kernel reports pressure (memory.h).
//
//   generation 1   workers by exec(2); their imports, with times, are learned     kUnlearned
//   meanwhile      the interpreter imports them, one step at a time, as a trial   kLoading
//   "ready"        one worker is forked ahead and waits                           kReady
//   a kill         the waiting fork is taken, the next one forked
//
// Why not one waiting process per worker: each imports for 2 s, so a second failure finds none
// ready. A runner of scripts would imitate __main__, tracebacks and exit codes. CLONE_PARENT skips
// the fork handlers that OpenBLAS needs. CRIU needs privileges, and no GPU in use.

namespace ddprun::launcher {
namespace {

// Imports that stand out; more than these don't.
constexpr size_t kSlowMax = 16;

Learned WithoutSteps(Learned learned) {
  learned.steps.clear();
  learned.varying.clear();
  return learned;
}

}  // namespace

std::vector<WarmEffect> WarmStarter::Begin(Instant now, std::optional<Learned> kept,
                                           bool preloads) {
  // A job with --preload has learned only what is refused; that is nothing to begin with.
  const bool known = kept.has_value() && (is_program() || !kept->steps.empty());
  if (rules_.unasked && !preloads) {
    if (kept.has_value()) learned_ = WithoutSteps(*std::move(kept));
    return {};
  }
  if (!known && !preloads) return {};
  if (kept.has_value()) learned_ = *std::move(kept);
  return Load(now);
}

std::vector<WarmEffect> WarmStarter::BeginReady(Instant now, std::optional<Learned> kept,
                                                absl::string_view ready) {
  if (kept.has_value()) learned_ = *std::move(kept);
  state_ = State::kLoading;
  loading_since_ = now;
  parked_ = true;
  absl::ConsumePrefix(&ready, "ready ");
  return OnReady(now, ready);
}

std::vector<WarmEffect> WarmStarter::OnKept(Instant now, Learned kept) {
  if (state_ != State::kUnlearned) return {};
  if (!stale_signature_.empty() && kept.signature == stale_signature_) return {};
  if (rules_.unasked && !kept.unfit.empty()) return {};
  learned_ = std::move(kept);
  std::vector<WarmEffect> effects = {
      WarmNote{"warm_kept", {{"modules", absl::StrCat(learned_.module_count())}}}};
  const std::vector<WarmEffect> load = Load(now);
  effects.insert(effects.end(), load.begin(), load.end());
  return effects;
}

std::vector<WarmEffect> WarmStarter::Load(Instant now) {
  state_ = State::kLoading;
  loading_since_ = now;
  refusing_ = false;
  stale_ = false;
  old_ = false;
  load_when_gone_ = leaving_;
  if (leaving_) return {};
  parked_ = true;
  return {Park{}};
}

// Ends what is parked, if anything is.
void WarmStarter::End(std::vector<WarmEffect>* effects) {
  load_when_gone_ = false;
  if (!parked_ || leaving_) return;
  leaving_ = true;
  effects->push_back(Unpark{});
}

std::vector<WarmEffect> WarmStarter::OnLearned(Instant now, Learned learned) {
  if (state_ != State::kUnlearned) return {};
  // Keep other facts about the same installation.
  if (learned.signature == learned_.signature) {
    learned.refused = std::move(learned_.refused);
    learned.slow = std::move(learned_.slow);
    learned.imports_milliseconds = learned_.imports_milliseconds;
    learned.unfit = std::move(learned_.unfit);
  }
  learned_ = std::move(learned);
  if (rules_.unasked && !learned_.unfit.empty()) return GiveUp(learned_.unfit);
  std::vector<WarmEffect> effects = {
      WarmNote{"warm_learned", {{"modules", absl::StrCat(learned_.module_count())}}}, Keep{}};
  const std::vector<WarmEffect> load = Load(now);
  effects.insert(effects.end(), load.begin(), load.end());
  return effects;
}

std::vector<WarmEffect> WarmStarter::OnSaid(Instant now, absl::string_view text) {
  if (state_ == State::kReady && text == "old") {
    state_ = State::kLoading;
    loading_since_ = now;
    old_ = true;
    return {WarmNote{"warm_old", {}}};
  }
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
                     {{"module", std::string(parts.first)}, {"why", std::string(parts.second)}}},
            Keep{}};
  }
  if (absl::ConsumePrefix(&text, "took ")) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits(' ', 1));
    uint32_t milliseconds = 0;
    if (learned_.slow.size() < kSlowMax && absl::SimpleAtoi(parts.second, &milliseconds)) {
      learned_.SetSlow(parts.first, milliseconds);
    }
    return {};
  }
  if (absl::ConsumePrefix(&text, "cannot ")) {
    if (!is_program()) return Unfit(absl::StrCat("they can't be forked: ", text), /*tells=*/false);
    return GiveUp(absl::StrCat("their program can't be started ahead: ", text));
  }
  if (!absl::ConsumePrefix(&text, "ready ")) return {};
  return OnReady(now, text);
}

std::vector<WarmEffect> WarmStarter::OnReady(Instant now, absl::string_view rest) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(rest, absl::MaxSplits(' ', 1));
  int64_t milliseconds = 0;
  uint64_t kibibytes = 0;
  if (!absl::SimpleAtoi(parts.first, &milliseconds)) milliseconds = 0;
  if (!absl::SimpleAtoi(parts.second, &kibibytes)) kibibytes = 0;
  state_ = State::kReady;
  import_time_ = absl::Milliseconds(std::max<int64_t>(milliseconds, 0));
  bytes_held_ = std::min(kibibytes, UINT64_MAX >> 10) << 10;
  learned_.imports_milliseconds = static_cast<uint32_t>(
      std::clamp<int64_t>(milliseconds, 0, std::numeric_limits<uint32_t>::max()));
  if (rules_.bytes_max != 0 && bytes_held_ > rules_.bytes_max) {
    return GiveUp(absl::StrCat(
        is_program() ? "their program, started ahead, holds "
                     : "the interpreter that has imported what they import holds ",
        BytesText(bytes_held_), ", and --warm_memory allows ", BytesText(rules_.bytes_max)));
  }
  return {WarmNote{"warm_ready",
                   {{"modules", absl::StrCat(learned_.module_count())},
                    {"import_ms", absl::StrCat(milliseconds)},
                    {"bytes", absl::StrCat(bytes_held_)},
                    {"ms", absl::StrCat(absl::ToInt64Milliseconds(now - loading_since_))}}},
          Keep{}};
}

std::vector<WarmEffect> WarmStarter::OnEnded(Instant now, absl::string_view how) {
  parked_ = false;
  if (std::exchange(leaving_, false)) {
    return std::exchange(load_when_gone_, false) ? Load(now) : std::vector<WarmEffect>();
  }
  if (state_ != State::kLoading && state_ != State::kReady) return {};
  if (old_) return Load(now);
  if (std::exchange(stale_, false)) return Unlearn();
  if (std::exchange(refusing_, false)) {
    if (++refusals_ <= (rules_.unasked ? kRefusalsUnaskedMax : kRefusalsMax)) return Load(now);
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
  return GiveUp(absl::StrCat(is_program() ? "the program that waits to become workers "
                                          : "the interpreter that waits to become workers ",
                             how, " ", deaths_, " times"));
}

std::vector<WarmEffect> WarmStarter::OnOtherProgram() {
  parked_ = false;
  return Unlearn();
}

std::vector<WarmEffect> WarmStarter::Unlearn() {
  state_ = State::kUnlearned;
  stale_signature_ = learned_.signature;
  learned_ = Learned();
  return {Forget{}, WarmNote{"warm_stale", {}}};
}

std::vector<WarmEffect> WarmStarter::GiveUp(std::string why, bool tells) {
  if (state_ == State::kOff) return {};
  state_ = State::kOff;
  why_ = why;
  std::vector<WarmEffect> effects = {
      WarmNote{"warm_off", {{"why", why}}},
      NotifyOnce{absl::StrCat("workers start cold from now on: ", why), tells}};
  End(&effects);
  return effects;
}

std::vector<WarmEffect> WarmStarter::OnShort(std::string why) {
  if (state_ != State::kLoading && state_ != State::kReady) return {};
  state_ = State::kShort;
  why_ = why;
  std::vector<WarmEffect> effects = {WarmNote{"warm_short", {{"why", why}}}};
  if (!std::exchange(short_told_, true)) {
    effects.push_back(NotifyOnce{absl::StrCat("workers start cold while memory is short: ", why)});
  }
  End(&effects);
  return effects;
}

std::vector<WarmEffect> WarmStarter::OnEmpty(Instant now) {
  return state_ == State::kShort ? Load(now) : std::vector<WarmEffect>();
}

std::string WarmStarter::WhyCold() const {
  switch (state_) {
    case State::kUnlearned:
      return is_program() ? "their program has not said that it can be started ahead"
                          : "what the script imports was not known yet";
    case State::kLoading:
      return is_program() ? "the program that is started ahead was not ready in time"
                          : "the interpreter was not ready in time";
    case State::kHeld:
      return "imports of their own were quicker";
    case State::kReady:
      if (suspected_) return "one crashed soon after its fork, and the next start is a cold one";
      return is_program() ? "the program that was started ahead did not become a worker"
                          : "the interpreter did not become a worker";
    case State::kShort:
    case State::kOff:
      return why_;
  }
  return "";
}

std::vector<WarmEffect> WarmStarter::OnStart(Instant now) {
  const absl::Duration lived = now - std::exchange(started_, now);
  if (!rules_.unasked || state_ != State::kLoading || Patience(now) > absl::ZeroDuration()) {
    return {};
  }
  state_ = State::kHeld;
  hold_ = std::min(std::max(hold_, lived * 1.5), kHoldMax);
  std::vector<WarmEffect> effects = {WarmNote{"warm_aside", {}}};
  End(&effects);
  return effects;
}

Instant WarmStarter::Deadline() const {
  return state_ == State::kHeld ? started_ + hold_ : Instant::Infinite();
}

std::vector<WarmEffect> WarmStarter::OnTimer(Instant now) {
  return now < Deadline() ? std::vector<WarmEffect>() : Load(now);
}

absl::Duration WarmStarter::Patience(Instant now) const {
  if (suspected_) return absl::ZeroDuration();
  switch (state_) {
    case State::kReady:
      return kForkPatience;
    case State::kLoading: {
      const absl::Duration loading = now - loading_since_;
      // The rest of kLoadPatience, so that no start waits for imports that hang.
      if (!rules_.unasked) return std::max(absl::ZeroDuration(), kLoadPatience - loading);
      // Imports ahead take up to a fifth longer than a worker's own, because each is checked.
      // Waiting is quicker once twice that, 40 %, is done.
      const absl::Duration imports = absl::Milliseconds(learned_.imports_milliseconds);
      if (rules_.crowded || loading < imports * 0.4 || loading > imports * 1.5) break;
      return imports * 1.5 - loading;
    }
    case State::kUnlearned:
    case State::kHeld:
    case State::kShort:
    case State::kOff:
      break;
  }
  return absl::ZeroDuration();
}

void WarmStarter::OnStarted(bool parked) {
  if (parked) deaths_ = 0;
}

std::vector<WarmEffect> WarmStarter::OnFirstEnd(bool warm, bool crashed, absl::Duration lived) {
  if (is_program()) return {};  // its fork is before its main()
  if (warm && crashed && lived < kSoon) {
    suspected_ = true;
    const std::string ms = absl::StrCat(absl::ToInt64Milliseconds(lived));
    return {WarmNote{"warm_suspected", {{"lived_ms", ms}}},
            NotifyOnce{absl::StrCat("a worker crashed ", ms,
                                    " ms after its fork from the interpreter that is kept ready: "
                                    "the next start is a cold one"),
                       /*unasked=*/true}};
  }
  if (warm || !suspected_) return {};
  // A cold one that crashes, too, however late its own imports have it do so, clears the fork. One
  // that was ended early, because of another node or by the user, shows nothing.
  if (!crashed && lived < kLong) return {};
  suspected_ = false;
  if (crashed) return {};
  return Unfit("one that was forked crashed soon, and the next one, which was not, did not",
               /*tells=*/true);
}

// Gives up, and keeps the reason for later jobs.
std::vector<WarmEffect> WarmStarter::Unfit(std::string why, bool tells) {
  if (state_ == State::kOff) return {};
  learned_.unfit = why;
  std::vector<WarmEffect> effects = {Keep{}};
  const std::vector<WarmEffect> off = GiveUp(std::move(why), tells);
  effects.insert(effects.end(), off.begin(), off.end());
  return effects;
}

std::string WarmStarter::BrokenInvariant() const {
  if (state_ == State::kReady && (refusing_ || stale_ || old_)) return "ready although it refused";
  if (deaths_ > kDeathsMax && state_ != State::kOff) return "more deaths than are borne";
  if (refusals_ > kRefusalsMax && state_ != State::kOff) return "more refusals than are borne";
  if (state_ == State::kHeld && !rules_.unasked) return "held though it was asked for";
  if (hold_ < absl::ZeroDuration() || hold_ > kHoldMax) return "held for longer than its bound";
  if (leaving_ && !parked_) return "ends what is not there";
  if (load_when_gone_ && !(leaving_ && state_ == State::kLoading)) return "loads for nobody";
  if (state_ == State::kReady && !parked_) return "ready although there is none";
  if (state_ == State::kUnlearned && !learned_.steps.empty()) return "learned while unlearned";
  return "";
}

void ParkOffers::OnPrepared(uint32_t local_rank) {
  started_.erase(local_rank);
  early_.erase(local_rank);
}

std::optional<int32_t> ParkOffers::OnStarted(uint32_t local_rank, int32_t pid) {
  started_[local_rank] = pid;
  if (early_.erase(local_rank) == 0) return std::nullopt;
  return pid;
}

std::optional<int32_t> ParkOffers::OnOffered(uint32_t local_rank) {
  const auto found = started_.find(local_rank);
  if (found != started_.end()) return found->second;
  early_.insert(local_rank);
  return std::nullopt;
}

}  // namespace ddprun::launcher
