#include "rendezvous/server/call_registry.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "rendezvous/wire/grpc_settings.h"
#include "rendezvous/wire/peer.h"

namespace ddprun::rendezvous {
namespace {

bool IsStranger(const Caller& caller) { return !caller.trusted && !caller.address.empty(); }

size_t CountOf(const absl::flat_hash_map<std::string, size_t>& counts, const std::string& name) {
  const auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second;
}

void CountDown(absl::flat_hash_map<std::string, size_t>& counts, const std::string& name) {
  const auto found = counts.find(name);
  if (--found->second == 0) counts.erase(found);
}

}  // namespace

Caller CallerOf(absl::string_view peer, bool trusted) {
  const std::optional<PeerAddress> address = ParsePeer(peer);
  return {.peer = std::string(peer),
          .address = address.has_value() ? AddressGroup(*address) : "",
          .trusted = trusted};
}

absl::Status TooManyCalls() {
  return absl::ResourceExhaustedError(absl::StrCat(
      "too many calls without the job's token come from this address: ",
      absl::Seconds(1) / CallBudget::kEvery,
      " a second are answered: ask less often, or give the token (--token_file, DDPRUN_TOKEN)"));
}

bool CallRegistry::Charge(const Caller& caller) {
  if (!IsStranger(caller)) return true;
  const std::lock_guard lock(mutex_);
  return budget_.Take(caller.address, MonotonicNow());
}

// All of these statuses are worth another try: an agent must not end because other peers flood.
absl::Status CallRegistry::Admit(const Tally& tally, const Caller& caller, bool* flood) const {
  if (closed_) return absl::UnavailableError("the rendezvous service is ending");
  if (tally.open >= tally.most) {
    return absl::UnavailableError(absl::StrCat("the rendezvous service has ", tally.open,
                                               " open calls of this kind, its most"));
  }
  if (!IsStranger(caller)) return absl::OkStatus();
  *flood = CountOf(connections_, caller.peer) >= kStrangersCallsMax;
  if (*flood) {
    return absl::UnavailableError(
        absl::StrCat("this connection has ", kStrangersCallsMax, " open calls, its most"));
  }
  if (tally.strangers >= tally.strangers_most ||
      CountOf(tally.addresses, caller.address) >= tally.address_most) {
    return absl::UnavailableError(
        "too many calls of this kind without the job's token are open: try again in a moment, or "
        "give the token (--token_file, DDPRUN_TOKEN)");
  }
  return absl::OkStatus();
}

void CallRegistry::Count(Tally& tally, const Caller& caller) {
  ++tally.open;
  if (!IsStranger(caller)) return;
  ++tally.strangers;
  ++tally.addresses[caller.address];
  ++connections_[caller.peer];
}

void CallRegistry::Discount(Tally& tally, const Caller& caller) {
  --tally.open;
  if (IsStranger(caller)) DiscountStranger(tally, caller);
}

void CallRegistry::DiscountStranger(Tally& tally, const Caller& caller) {
  --tally.strangers;
  CountDown(tally.addresses, caller.address);
  CountDown(connections_, caller.peer);
}

absl::Status CallRegistry::Refuse(absl::Status status, const Caller& caller, bool flood) {
  if (flood && on_flood_) on_flood_(caller.peer);
  return status;
}

absl::Status CallRegistry::Add(OpenStream::Kind kind, const std::shared_ptr<OpenStream>& stream,
                               const Caller& caller) {
  absl::Status status;
  bool flood = false;
  {
    const std::lock_guard lock(mutex_);
    status = Admit(Of(kind), caller, &flood);
    if (status.ok()) {
      streams_.emplace(stream.get(), Entry{kind, stream, caller});
      Count(Of(kind), caller);
    } else {
      refused_.insert(stream.get());
    }
  }
  return Refuse(std::move(status), caller, flood);
}

void CallRegistry::Known(OpenStream* stream) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end() || !IsStranger(found->second.caller)) return;
  DiscountStranger(Of(found->second.kind), found->second.caller);
  found->second.caller.trusted = true;
}

void CallRegistry::Remove(OpenStream* stream) {
  std::shared_ptr<OpenStream> last;  // destroyed after the lock is gone
  const std::lock_guard lock(mutex_);
  if (refused_.erase(stream) == 0) {
    const auto found = streams_.find(stream);
    Discount(Of(found->second.kind), found->second.caller);
    last = std::move(found->second.stream);
    streams_.erase(found);
  }
  if (streams_.empty() && refused_.empty()) done_.notify_all();
}

uint64_t CallRegistry::Add(grpc::ServerUnaryReactor* call, const Caller& caller) {
  absl::Status status;
  bool flood = false;
  {
    const std::lock_guard lock(mutex_);
    status = Admit(unary_, caller, &flood);
    if (status.ok()) {
      calls_.emplace(++last_number_, std::pair(call, caller));
      Count(unary_, caller);
      return last_number_;
    }
  }
  call->Finish(ToGrpcStatus(Refuse(std::move(status), caller, flood)));
  return 0;
}

grpc::ServerUnaryReactor* CallRegistry::Take(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(number);
  if (found == calls_.end()) return nullptr;
  const auto [call, caller] = found->second;
  Discount(unary_, caller);
  calls_.erase(found);
  return call;
}

CallRegistry::Open CallRegistry::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  Open open;
  for (const auto& [raw, entry] : streams_) open.streams.push_back(entry.stream);
  for (const auto& [number, call] : calls_) open.calls.push_back(call.first);
  calls_.clear();
  return open;
}

bool CallRegistry::WaitUntilDone(absl::Duration limit) {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, absl::ToChronoMilliseconds(limit),
                        [this] { return streams_.empty() && refused_.empty(); });
}

}  // namespace ddprun::rendezvous
