#ifndef DDPRUN_BENCH_LOAD_LINK_BYTES_H_
#define DDPRUN_BENCH_LOAD_LINK_BYTES_H_

#include <cstdint>

namespace ddprun::bench {

// What a TCP connection has carried since it was made, without headers of TCP and IP.
struct LinkBytes {
  uint64_t to_service = 0;
  uint64_t from_service = 0;
};

// As the kernel counts them (tcp(7), TCP_INFO). Zeros where `socket` is none.
LinkBytes BytesOf(int socket);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_LINK_BYTES_H_
