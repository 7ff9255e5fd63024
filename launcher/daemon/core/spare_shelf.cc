#include "launcher/daemon/core/spare_shelf.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

// The number of differences.
size_t Distance(const SpareFacts& one, const SpareFacts& other) {
  size_t distance = 0;
  for (const auto& [name, value] : one) {
    const auto found = other.find(name);
    distance += found == other.end() || found->second != value ? 1 : 0;
  }
  return distance +
         static_cast<size_t>(std::count_if(other.begin(), other.end(), [&one](const auto& fact) {
           return !one.contains(fact.first);
         }));
}

}  // namespace

std::string Difference(const SpareFacts& parked, const SpareFacts& wanted) {
  for (const auto& [name, value] : wanted) {
    const auto found = parked.find(name);
    if (found != parked.end() && found->second == value) continue;
    if (found == parked.end()) return absl::StrCat(name, " was not set");
    if (absl::StartsWith(name, kSecretFact)) return absl::StrCat(name, " has changed");
    return absl::StrCat(name, " is ", Quoted(value), ", and was ", Quoted(found->second));
  }
  for (const auto& [name, value] : parked) {
    if (!wanted.contains(name)) return absl::StrCat(name, " is not set any more");
  }
  return "";
}

SpareShelf::Asked SpareShelf::OnAsked(Instant now, const std::string& name,
                                      const SpareFacts& facts) {
  const Kind* nearest = nullptr;
  for (auto& [id, kind] : kinds_) {
    if (kind.facts == facts) {
      kind.used = now;
      ++kind.jobs;
      if (kind.state == State::kReady) {
        kind.state = State::kEmpty;
        kind.bytes = 0;
        return {.id = id, .leased = true};
      }
      const std::string why = kind.state == State::kLoading  ? "its imports are under way"
                              : kind.state == State::kBarred ? kind.why
                                                             : "none is parked yet";
      return {.id = id, .why = why};
    }
    if (kind.name != name || kind.state != State::kReady) continue;
    if (nearest == nullptr || Distance(kind.facts, facts) < Distance(nearest->facts, facts)) {
      nearest = &kind;
    }
  }
  Asked asked{.id = next_id_++, .why = "this is its first run"};
  if (nearest != nullptr) {
    asked.why = Difference(nearest->facts, facts);
    asked.differs = true;
  }
  kinds_[asked.id] = {.name = name, .facts = facts, .jobs = 1, .used = now};
  return asked;
}

std::vector<ShelfEffect> SpareShelf::OnLeft(Instant now, uint64_t id) {
  const auto found = kinds_.find(id);
  if (found == kinds_.end()) return {};
  if (found->second.jobs > 0) --found->second.jobs;
  found->second.used = now;
  return OnSettled(now, id, absl::ZeroDuration());
}

std::vector<ShelfEffect> SpareShelf::OnSettled(Instant now, uint64_t id, absl::Duration pause) {
  const auto found = kinds_.find(id);
  if (found == kinds_.end()) return {};
  Kind& kind = found->second;
  if (kind.state == State::kEmpty || kind.state == State::kBarred) {
    kind.start_at = std::min(kind.start_at, now + pause);
  }
  return OnTime(now);
}

std::vector<ShelfEffect> SpareShelf::OnReady(Instant now, uint64_t id, uint64_t bytes) {
  const auto found = kinds_.find(id);
  if (found == kinds_.end()) return {EndSpare{id, "no job asks for it"}};
  found->second.state = State::kReady;
  found->second.used = now;  // it begins to wait
  found->second.bytes = bytes;
  std::vector<ShelfEffect> effects;
  if (bytes > bytes_max_) {
    const std::string why =
        absl::StrCat("it holds ", BytesText(bytes), ", and --memory allows all together ",
                     BytesText(bytes_max_));
    effects.emplace_back(EndSpare{id, why});
    OnGone(id, why);
    return effects;
  }
  while (Bytes() > bytes_max_) {
    Remove(LeastUsed(/*with_memory=*/true), "others need the memory that --memory allows",
           &effects);
  };
  return effects;
}

void SpareShelf::OnGone(uint64_t id, const std::string& why) {
  const auto found = kinds_.find(id);
  if (found == kinds_.end()) return;
  found->second.state = State::kBarred;
  found->second.bytes = 0;
  found->second.start_at = Instant::Infinite();
  found->second.why = why;
}

std::vector<ShelfEffect> SpareShelf::OnShort() {
  std::vector<ShelfEffect> effects;
  for (auto& [id, kind] : kinds_) {
    if (kind.state != State::kReady && kind.state != State::kLoading) continue;
    effects.emplace_back(EndSpare{id, "memory is short"});
    OnGone(id, "memory was short");
  }
  return effects;
}

std::vector<ShelfEffect> SpareShelf::OnTime(Instant now) {
  std::vector<ShelfEffect> effects;
  for (auto kind = kinds_.begin(); kind != kinds_.end();) {
    const auto next = std::next(kind);
    if (kind->second.start_at <= now) {
      kind->second.start_at = Instant::Infinite();
      kind->second.state = State::kLoading;
      kind->second.why.clear();
      effects.emplace_back(StartSpare{kind->first});
    } else if (IdleEnd(kind->second) <= now) {
      const char* why = "nobody has used it for the idle timeout";
      if (kind->second.jobs == 0) {
        Remove(kind, why, &effects);
      } else {  // its job will want another one when it ends
        effects.emplace_back(EndSpare{kind->first, why});
        kind->second.state = State::kEmpty;
        kind->second.bytes = 0;
      }
    }
    kind = next;
  }
  while (kinds_.size() > kKindsMax) {
    Remove(LeastUsed(/*with_memory=*/false), "there are too many kinds of jobs", &effects);
  }
  return effects;
}

Instant SpareShelf::NextDeadline() const {
  Instant next = Instant::Infinite();
  for (const auto& [id, kind] : kinds_) {
    next = std::min({next, kind.start_at, IdleEnd(kind)});
  }
  return next;
}

// When an interpreter has been unused for too long; infinite = in use, or there is none.
Instant SpareShelf::IdleEnd(const Kind& kind) const {
  // Imports don't count: on a slow file system they may take longer than the idle time.
  if (kind.state == State::kLoading) return Instant::Infinite();
  const bool waits = kind.state == State::kReady;
  return waits || kind.jobs == 0 ? kind.used + idle_max_ : Instant::Infinite();
}

uint64_t SpareShelf::Bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, kind] : kinds_) bytes += kind.bytes;
  return bytes;
}

// Requires: there is one.
std::map<uint64_t, SpareShelf::Kind>::iterator SpareShelf::LeastUsed(bool with_memory) {
  auto least = kinds_.end();
  for (auto kind = kinds_.begin(); kind != kinds_.end(); ++kind) {
    if (with_memory && kind->second.bytes == 0) continue;
    if (least == kinds_.end() || kind->second.used < least->second.used) least = kind;
  }
  return least;
}

void SpareShelf::Remove(std::map<uint64_t, Kind>::iterator kind, const std::string& why,
                        std::vector<ShelfEffect>* effects) {
  if (kind->second.state == State::kReady || kind->second.state == State::kLoading) {
    effects->emplace_back(EndSpare{kind->first, why});
  }
  kinds_.erase(kind);
}

}  // namespace ddprun::launcher
