// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/sampler_state_fuzzer
// tests/fuzz/corpus/sampler_state.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "tests/fuzz/sampler_state_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ddprun::ReadSamplerStateBytes(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
