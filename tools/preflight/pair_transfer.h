#ifndef DDPRUN_TOOLS_PREFLIGHT_PAIR_TRANSFER_H_
#define DDPRUN_TOOLS_PREFLIGHT_PAIR_TRANSFER_H_

#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "tools/preflight/core/link_facts.h"
#include "tools/preflight/sockets.h"

namespace ddprun::launcher {

// The transfer of one pair over a TCP connection: as much as goes through in one direction within
// 60 ms, 16 MiB at most, then the same in the other. Both ends block for at most 3 s, usually 0.1
// s. Threads: any.

struct TransferKey {  // identifies a transfer
  uint64_t token = 0;
  uint32_t round = 0;  // counted over all passes

  friend auto operator<=>(const TransferKey&, const TransferKey&) = default;
};

// The end that connects. Fills in connected or refused, and the rate of the second direction.
void TransferFrom(const SocketAddress& peer, int family, const TransferKey& key,
                  PeerMeasurement* measurement);

// The end that accepts. Keeps connections of later transfers: other pairs may be a round ahead.
class TransferServer {
 public:
  explicit TransferServer(BoundSocket listener) : listener_(std::move(listener)) {}

  uint16_t port() const { return listener_.port; }
  int family() const { return listener_.family; }

  // Fills in the rate of the first direction.
  void TransferTo(const TransferKey& key, PeerMeasurement* measurement);

 private:
  absl::StatusOr<Fd> AcceptFor(const TransferKey& key);

  BoundSocket listener_;
  std::map<TransferKey, Fd> early_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_PAIR_TRANSFER_H_
