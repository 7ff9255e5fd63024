#ifndef DDPRUN_BENCH_LOAD_LINK_BYTES_H_
#define DDPRUN_BENCH_LOAD_LINK_BYTES_H_

#include <cstdint>

namespace ddprun::bench {

// The bytes that a TCP connection has carried since it was made, without headers of TCP and IP.
struct LinkBytes {
  uint64_t to_service = 0;
  uint64_t from_service = 0;
};

// The kernel's counts (tcp(7), TCP_INFO). Zeros if `socket` isn't a TCP socket.
LinkBytes BytesOf(int socket);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_LINK_BYTES_H_
