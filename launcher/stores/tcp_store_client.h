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

// A client of the store at MASTER_ADDR:MASTER_PORT, in torch's TCPStore protocol as of 2.2, for
// workers of our own (`ddprun env --nnodes`, `ddprun test`). Calls block, at most until the
// deadline. Threads: one at a time. Source: torch/csrc/distributed/c10d/TCPStore.cpp.
class TcpStoreClient {
 public:
  // Errors: NOT_FOUND with the resolver's text; UNAVAILABLE — no server; DEADLINE_EXCEEDED.
  static absl::StatusOr<TcpStoreClient> Connect(const std::string& host, uint16_t port,
                                                Instant deadline);

  // A client's first bytes in the protocol of torch 2.2 and later, for callers with a socket of
  // their own: VALIDATE and PING. The answer is `nonce`, 4 bytes. torch's own clients send their
  // pid, so no worker sends 0.
  static std::string Greeting(uint32_t nonce);

  // The deadline of later calls. After an error the connection can't be used any more.
  void set_deadline(Instant deadline) { deadline_ = deadline; }

  // Errors of both: UNAVAILABLE — the connection broke; DEADLINE_EXCEEDED; INTERNAL — an answer
  // that a store doesn't give.
  absl::Status Set(absl::string_view key, absl::string_view value);
  // Waits until the key is set. At most 1 MiB.
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
