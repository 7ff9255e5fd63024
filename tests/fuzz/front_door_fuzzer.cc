// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/front_door_fuzzer <corpus directory>.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tests/fuzz/front_door_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ddprun::rendezvous::FrontDoorFuzzResult result =
      ddprun::rendezvous::FuzzFrontDoor(data, size);
  DDPRUN_CHECK(result.problem.empty(), result.problem);
  return 0;
}
