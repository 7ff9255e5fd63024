#ifndef DDPRUN_LAUNCHER_KEEPER_CHANNEL_H_
#define DDPRUN_LAUNCHER_KEEPER_CHANNEL_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ddprun::launcher {

// The channel between an agent and its keeper: messages with descriptors over SOCK_SEQPACKET.
//
// A packet is one byte that says where the message is, then the message itself. A packet must fit
// into the socket's send buffer, and the system sets its size. So a long message (a command line of
// megabytes is legal) goes into a memory file (memfd_create(2)) that travels as the first
// descriptor.
inline constexpr size_t kMessageBytesMax = 8 << 20;  // beyond the largest exec(2): 6 MiB

struct Message {
  std::string bytes;
  std::vector<Fd> fds;  // fewer than were sent if this process was out of descriptors (ulimit -n)
};

// A send queue: never blocks, and keeps the messages that the socket doesn't take now, in order.
// Threads: one.
class SendQueue {
 public:
  // `channel` stays the caller's and must outlive the queue.
  explicit SendQueue(int channel) : channel_(channel) {}

  // Errors: RESOURCE_EXHAUSTED — the message is longer than kMessageBytesMax, or kWaitingMax wait
  // already, or the kernel lacks memory or descriptors: it was not sent. Any other: the peer is
  // gone.
  absl::Status Send(absl::string_view bytes, std::vector<Fd> fds = {});
  // Sends the messages that wait. Errors: the peer is gone.
  absl::Status Flush();
  bool empty() const { return waiting_.empty(); }

 private:
  static constexpr size_t kWaitingMax = 4096;

  int channel_;
  std::deque<Message> waiting_;  // complete packets
};

// The next message, or none when there is none now. Descriptors are close-on-exec.
// Errors: OUT_OF_RANGE — the peer has closed its end or died. INVALID_ARGUMENT — a packet that no
// SendQueue makes; it was dropped, and the next one can be received.
absl::StatusOr<std::optional<Message>> ReceiveMessage(int channel);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_CHANNEL_H_
