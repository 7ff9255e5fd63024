// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/preflight_fuzzer
// tests/fuzz/corpus/preflight.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "tests/fuzz/preflight_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ddprun::launcher::ReadPreflightBytes(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
