#include "rendezvous/server/core/call_budget.h"

#include <algorithm>

namespace ddprun::rendezvous {

bool CallBudget::Take(const std::string& address, Instant now) {
  latest_ = std::max(latest_, now);
  while (!next_.empty() && next_.begin()->first <= latest_) {
    whole_at_.erase(next_.begin()->second);
    next_.erase(next_.begin());
  }
  auto found = whole_at_.find(address);
  const bool shares = found == whole_at_.end() && whole_at_.size() >= kAddressesMax;
  if (shares) found = whole_at_.find("");
  const Instant before = found == whole_at_.end() ? latest_ : found->second;
  const Instant after = before + every_;
  if (after - latest_ > kBurst * every_) return false;
  const std::string name = shares ? std::string() : address;
  if (found != whole_at_.end()) next_.erase({before, name});
  whole_at_[name] = after;
  next_.emplace(after, name);
  return true;
}

std::string CallBudget::BrokenInvariant() const {
  if (whole_at_.size() > kAddressesMax + 1) return "more addresses than there is room for";
  if (whole_at_.size() != next_.size()) return "addresses listed wrongly";
  for (const auto& [address, at] : whole_at_) {
    if (!next_.contains({at, address})) return "an address listed at another time";
    if (at - latest_ > kBurst * every_) return "more calls than an allowance";
  }
  return "";
}

}  // namespace ddprun::rendezvous
