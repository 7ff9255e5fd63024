#include "rendezvous/server/call_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/wire/grpc_status.h"

namespace ddprun::rendezvous {

absl::Status CallRegistry::Admit(size_t open, size_t most) const {
  if (closed_) return absl::UnavailableError("the rendezvous service is ending");
  if (open < most) return absl::OkStatus();
  // Worth another try: an agent must not end for a flood of others.
  return absl::UnavailableError(
      absl::StrCat("the rendezvous service has ", open, " open calls of this kind, its most"));
}

absl::Status CallRegistry::Add(OpenStream::Kind kind, const std::shared_ptr<OpenStream>& stream) {
  const bool watch = kind == OpenStream::Kind::kWatch;
  const std::lock_guard lock(mutex_);
  absl::Status status =
      watch ? Admit(watches_, kWatchesMax) : Admit(streams_.size() - watches_, kStreamsMax);
  if (status.ok()) {
    streams_.emplace(stream.get(), Entry{kind, stream});
    watches_ += watch ? 1 : 0;
  } else {
    refused_.insert(stream.get());
  }
  return status;
}

void CallRegistry::Remove(OpenStream* stream) {
  std::shared_ptr<OpenStream> last;  // destroyed after the lock is gone
  const std::lock_guard lock(mutex_);
  if (refused_.erase(stream) == 0) {
    const auto found = streams_.find(stream);
    watches_ -= found->second.kind == OpenStream::Kind::kWatch ? 1 : 0;
    last = std::move(found->second.stream);
    streams_.erase(found);
  }
  if (streams_.empty() && refused_.empty()) done_.notify_all();
}

uint64_t CallRegistry::Add(grpc::ServerUnaryReactor* call) {
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    status = Admit(calls_.size(), kUnaryCallsMax);
    if (status.ok()) {
      calls_.emplace(++last_number_, call);
      return last_number_;
    }
  }
  call->Finish(ToGrpcStatus(status));
  return 0;
}

grpc::ServerUnaryReactor* CallRegistry::Take(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(number);
  if (found == calls_.end()) return nullptr;
  grpc::ServerUnaryReactor* call = found->second;
  calls_.erase(found);
  return call;
}

CallRegistry::Open CallRegistry::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  Open open;
  for (const auto& [raw, entry] : streams_) open.streams.push_back(entry.stream);
  for (const auto& [number, call] : calls_) open.calls.push_back(call);
  calls_.clear();
  return open;
}

bool CallRegistry::WaitUntilDone(absl::Duration limit) {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, absl::ToChronoMilliseconds(limit),
                        [this] { return streams_.empty() && refused_.empty(); });
}

}  // namespace ddprun::rendezvous
