// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/supervisor_fuzzer <corpus directory>.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tests/fuzz/supervisor_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ddprun::launcher::SupervisorFuzzResult result =
      ddprun::launcher::FuzzSupervisor(data, size);
  DDPRUN_CHECK(result.problem.empty(), result.problem);
  return 0;
}
