#ifndef DDPRUN_BASE_PACKET_H_
#define DDPRUN_BASE_PACKET_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ddprun {

// Packets on a unix socket of SOCK_SEQPACKET, with descriptors. Source: unix(7), SCM_RIGHTS.
inline constexpr size_t kPacketFdsMax = 8;

// Sends one packet without waiting. Returns 0 or an errno: EAGAIN = the other side has to read
// first. Requires: `bytes` isn't empty; kPacketFdsMax descriptors at most. Threads: any.
int SendPacket(int socket, absl::string_view bytes, const std::vector<Fd>& fds);

struct Packet {
  // As recvmsg(2) returns it: 0 = the other side has closed its end. errno is set where it is -1.
  ssize_t size = 0;
  std::vector<Fd> fds;  // closed on exec; fewer than were sent where this process may open no more
  bool cut = false;     // bytes are missing: no room for them
};
// Receives one packet, of at most bytes->size() bytes, without waiting. Threads: any.
Packet ReceivePacket(int socket, std::string* bytes);

}  // namespace ddprun

#endif  // DDPRUN_BASE_PACKET_H_
