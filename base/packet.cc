#include "base/packet.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace ddprun {
namespace {

using FdSpace = char[CMSG_SPACE(kPacketFdsMax * sizeof(int))];

std::vector<Fd> TakeFds(msghdr* header) {
  std::vector<Fd> fds;
  for (cmsghdr* control = CMSG_FIRSTHDR(header); control != nullptr;
       control = CMSG_NXTHDR(header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

int SendPacket(int socket, absl::string_view bytes, const std::vector<Fd>& fds) {
  iovec io{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) FdSpace space{};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  if (const size_t count = fds.size(); count > 0) {
    header.msg_control = space;
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (size_t i = 0; i < count; ++i) {
      const int fd = fds[i].get();
      std::memcpy(CMSG_DATA(control) + i * sizeof(int), &fd, sizeof(int));
    }
  }
  while (sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

Packet ReceivePacket(int socket, std::string* bytes) {
  iovec io{.iov_base = bytes->data(), .iov_len = bytes->size()};
  alignas(cmsghdr) FdSpace space{};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof(space);
  Packet packet;
  do {
    packet.size = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // ECONNRESET: the other side is gone and has left a packet of ours unread; it comes once,
    // before the packets that the other side sent last.
  } while (packet.size < 0 && (errno == EINTR || errno == ECONNRESET));
  if (packet.size < 0) return packet;
  packet.fds = TakeFds(&header);
  packet.cut = (header.msg_flags & MSG_TRUNC) != 0;
  return packet;
}

}  // namespace ddprun
