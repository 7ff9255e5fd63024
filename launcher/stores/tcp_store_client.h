#ifndef DDPRUN_LAUNCHER_STORES_TCP_STORE_CLIENT_H_
#define DDPRUN_LAUNCHER_STORES_TCP_STORE_CLIENT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"
#include "base/instant.h"

namespace ddprun::launcher {

// A worker's side of the store at MASTER_ADDR:MASTER_PORT, in torch's TCPStore protocol as of 2.2:
// for workers of our own (`ddprun env --nnodes`, `ddprun test`). Blocks, at most until its
// deadline. Threads: one at a time. Source: torch/csrc/distributed/c10d/TCPStore.cpp.
class TcpStoreClient {
 public:
  // Errors: NOT_FOUND with the resolver's text; UNAVAILABLE — nobody answers there;
  // DEADLINE_EXCEEDED.
  static absl::StatusOr<TcpStoreClient> Connect(const std::string& host, uint16_t port,
                                                Instant deadline);

  // What a client says first in the protocol of torch 2.2 and later, for callers with a socket of
  // their own: VALIDATE and PING. The answer is `nonce`, 4 bytes. torch's own clients send their
  // process id, so 0 is nobody's.
  static std::string Greeting(uint32_t nonce);

  // Of what follows. After an error the connection is of no use any more.
  void set_deadline(Instant deadline) { deadline_ = deadline; }

  // Errors of both: UNAVAILABLE — the connection broke; DEADLINE_EXCEEDED; INTERNAL — no store's
  // answer.
  absl::Status Set(absl::string_view key, absl::string_view value);
  // Waits until somebody has set it. At most 1 MiB.
  absl::StatusOr<std::string> WaitAndGet(absl::string_view key);

 private:
  TcpStoreClient(Fd socket, Instant deadline);
  absl::Status Send(absl::string_view bytes);
  absl::StatusOr<std::string> Receive(size_t size);

  Fd socket_;
  Instant deadline_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_TCP_STORE_CLIENT_H_
