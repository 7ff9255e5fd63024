#ifndef DDPRUN_RENDEZVOUS_SERVER_PEER_H_
#define DDPRUN_RENDEZVOUS_SERVER_PEER_H_

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// True when gRPC's name of a peer ("ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711", "unix:", "inproc")
// is this machine over loopback, a unix socket, or this process. Threads: any.
bool IsLocalPeer(absl::string_view peer);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_PEER_H_
