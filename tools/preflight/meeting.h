#ifndef DDPRUN_TOOLS_PREFLIGHT_MEETING_H_
#define DDPRUN_TOOLS_PREFLIGHT_MEETING_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/instant.h"
#include "launcher/stores/tcp_store_client.h"

namespace ddprun::launcher {

// A client of the job's store for a network check, over links that may be faulty. Connects on
// demand, and again when a connection breaks or was given up. Threads: one at a time.
class Meeting {
 public:
  Meeting(std::string host, uint16_t port) : host_(std::move(host)), port_(port) {}

  // Called a few times a second while no connection can be made.
  void set_on_trying(std::function<void()> on_trying) { on_trying_ = std::move(on_trying); }

  // Errors of both: DEADLINE_EXCEEDED or UNAVAILABLE at the deadline, with the last reason.
  absl::Status Set(const std::string& key, const std::string& value, Instant deadline);
  // Waits until the key is set.
  absl::StatusOr<std::string> Get(const std::string& key, Instant deadline);

 private:
  absl::Status Connect(Instant deadline);

  const std::string host_;
  const uint16_t port_;
  std::function<void()> on_trying_;
  std::optional<TcpStoreClient> client_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_MEETING_H_
