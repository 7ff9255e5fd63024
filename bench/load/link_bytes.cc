#include "bench/load/link_bytes.h"

#include <linux/tcp.h>  // glibc's netinet/tcp.h has no bytes, and can't be seen beside it
#include <netinet/in.h>
#include <sys/socket.h>

namespace ddprun::bench {

LinkBytes BytesOf(int socket) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  return {.to_service = info.tcpi_bytes_acked, .from_service = info.tcpi_bytes_received};
}

}  // namespace ddprun::bench
