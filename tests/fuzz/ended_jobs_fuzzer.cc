// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/ended_jobs_fuzzer <corpus directory>.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "tests/fuzz/ended_jobs_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ddprun::launcher::FuzzEndedJob(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
