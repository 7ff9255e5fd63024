#include "launcher/side_channels/core/timer_table.h"

#include <algorithm>

namespace ddprun::launcher {

bool TimerTable::Set(uint32_t local_rank, uint32_t pid, const std::string& scope, Instant deadline,
                     int signal) {
  if (scope.size() > kScopeBytesMax) return false;
  const auto key = std::make_pair(pid, scope);
  if (timers_.size() >= kTimersMax && !timers_.contains(key)) return false;
  timers_[key] = {.local_rank = local_rank, .deadline = deadline, .signal = signal};
  return true;
}

void TimerTable::Release(uint32_t pid, const std::string& scope) { timers_.erase({pid, scope}); }

void TimerTable::Forget(uint32_t local_rank) {
  std::erase_if(timers_, [&](const auto& timer) { return timer.second.local_rank == local_rank; });
}

Instant TimerTable::NextDeadline() const {
  Instant next = Instant::Infinite();
  for (const auto& [key, timer] : timers_) next = std::min(next, timer.deadline);
  return next;
}

std::vector<TimerTable::Expired> TimerTable::TakeExpired(Instant now) {
  std::map<uint32_t, std::pair<Instant, Expired>> first;  // by local rank
  for (const auto& [key, timer] : timers_) {
    if (timer.deadline > now || timer.signal == 0) continue;
    const auto found = first.find(timer.local_rank);
    if (found != first.end() && found->second.first <= timer.deadline) continue;
    first[timer.local_rank] = {
        timer.deadline,
        {.local_rank = timer.local_rank, .scope = key.second, .signal = timer.signal}};
  }
  std::erase_if(timers_, [&](const auto& timer) {
    return timer.second.deadline <= now || first.contains(timer.second.local_rank);
  });
  std::vector<Expired> expired;
  expired.reserve(first.size());
  for (auto& [local_rank, entry] : first) expired.push_back(std::move(entry.second));
  return expired;
}

}  // namespace ddprun::launcher
