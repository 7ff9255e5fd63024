// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/progress_fuzzer <corpus directory>.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tests/fuzz/progress_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ddprun::launcher::ProgressFuzzResult result = ddprun::launcher::FuzzProgress(data, size);
  DDPRUN_CHECK(result.problem.empty(), result.problem);
  return 0;
}
