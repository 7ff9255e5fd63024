// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/kubernetes_fuzzer
// tests/fuzz/corpus/kubernetes.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "tests/fuzz/kubernetes_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ddprun::launcher::ReadHostsBytes(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
