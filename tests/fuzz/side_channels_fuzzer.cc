// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/side_channels_fuzzer <corpus
// directory>.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "tests/fuzz/side_channels_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ddprun::launcher::FuzzSideChannels(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
