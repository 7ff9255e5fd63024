#ifndef DDPRUN_RENDEZVOUS_WIRE_TCP_LISTENER_H_
#define DDPRUN_RENDEZVOUS_WIRE_TCP_LISTENER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ddprun::rendezvous {

// Sockets that listen on one port, one for each address of a name that this machine has.
struct TcpListener {
  std::vector<Fd> sockets;  // not blocking
  int port = 0;
};

// Listens on `listen`: "0.0.0.0:29400", "[::]:0", "name:0". Port 0 = any free one except `avoided`,
// which others may want. 0.0.0.0 and :: both mean all addresses of IPv4 and IPv6, as with gRPC.
// Connections have the options that gRPC sets for its own. Errors: those of StartGrpcListener
// (grpc_listener.h).
absl::StatusOr<TcpListener> ListenTcp(const std::string& listen,
                                      const std::vector<uint16_t>& avoided = {});

// End of the error about a port in use; the caller adds which option sets the port.
inline constexpr absl::string_view kPortTakenHint =
    "; another job or service holds that port: end it, or choose another port";

// The status for the errno of a bind(2) or listen(2), with what helps.
absl::Status ListenError(int error_number, const std::string& listen);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_TCP_LISTENER_H_
