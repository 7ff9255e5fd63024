#include "tools/preflight/meeting.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "tools/preflight/sockets.h"

namespace ddprun::launcher {
namespace {

// The kernel sends a lost SYN again after a second; a new connection is sooner.
constexpr absl::Duration kConnecting = absl::Milliseconds(250);
constexpr absl::Duration kPause = absl::Milliseconds(50);

}  // namespace

absl::Status Meeting::Connect(Instant deadline) {
  while (!client_.has_value()) {
    const Instant now = MonotonicNow();
    absl::StatusOr<TcpStoreClient> client =
        TcpStoreClient::Connect(host_, port_, std::min(deadline, now + kConnecting));
    if (client.ok()) {
      client_.emplace(*std::move(client));
      break;
    }
    if (on_trying_) on_trying_();
    if (MonotonicNow() + kPause > deadline) return client.status();
    // A refused connection is answered at once.
    AwaitReady(-1, 0, MonotonicNow() + kPause).IgnoreError();
  }
  client_->set_deadline(deadline);
  return absl::OkStatus();
}

absl::Status Meeting::Set(const std::string& key, const std::string& value, Instant deadline) {
  while (true) {
    DDPRUN_RETURN_IF_ERROR(Connect(deadline));
    absl::Status status = client_->Set(key, value);
    // Sent is not stored: only an answer says so.
    if (status.ok()) status = client_->WaitAndGet(key).status();
    if (status.ok()) return status;
    client_.reset();
    if (MonotonicNow() >= deadline) return status;
  }
}

absl::StatusOr<std::string> Meeting::Get(const std::string& key, Instant deadline) {
  while (true) {
    DDPRUN_RETURN_IF_ERROR(Connect(deadline));
    absl::StatusOr<std::string> value = client_->WaitAndGet(key);
    if (value.ok()) return value;
    client_.reset();
    if (MonotonicNow() >= deadline) return value.status();
  }
}

}  // namespace ddprun::launcher
