#ifndef DDPRUN_TESTS_FUZZ_STORE_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_STORE_FUZZ_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// How a run over a store went; for tests that want it to reach something.
struct StoreFuzzResult {
  size_t answered = 0;
  size_t refused = 0;    // of those: INVALID_ARGUMENT or RESOURCE_EXHAUSTED
  size_t cancelled = 0;  // while they waited
  size_t malformed = 0;  // requests that agent/v1 does not take
};

// Feeds a store of small bounds with what `bytes` say and aborts when it breaks its promises: its
// own invariants, each call answered exactly once, with a code that its header names, and
// everything answered when it is closed. The bytes are steps: one that chooses, then
//   0xf0 …         pause of 0 to 15 s        0xe0 …   cancel one of the last 16 calls
//   0xd0, 0xd1     timer, close              else     a call: so many bytes are its StoreRequest
StoreFuzzResult FuzzStore(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_STORE_FUZZ_H_
