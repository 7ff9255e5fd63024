#ifndef DDPRUN_TESTS_FUZZ_TCP_STORE_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_TCP_STORE_FUZZ_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// How a run went; for tests that want it to reach something.
struct TcpStoreFuzzResult {
  size_t reply_bytes = 0;
  size_t closed = 0;  // connections that cost themselves
  size_t waits = 0;   // the most at a time
};

// Feeds a store of small bounds with what `bytes` say and aborts when it breaks its invariants, or
// speaks to a connection that isn't open. The bytes are steps: the first of each says over which of
// 4 connections (low 2 bits), whether it is closed (bit 2), and else how many of the next bytes
// come over it (bits 3 to 7, times 4).
TcpStoreFuzzResult FuzzTcpStore(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_TCP_STORE_FUZZ_H_
