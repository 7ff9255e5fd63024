// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/wire_fuzzer <corpus directory>.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tests/fuzz/wire_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // For the life of the process: a service takes longer to begin than an input.
  static auto* const fuzz = new ddprun::rendezvous::WireFuzz();
  const ddprun::rendezvous::WireFuzzResult result = fuzz->Play(data, size);
  DDPRUN_CHECK(result.problem.empty(), result.problem);
  return 0;
}
