// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/error_file_fuzzer <corpus directory>.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "tests/fuzz/error_file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ddprun::launcher::FuzzErrorFile(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
