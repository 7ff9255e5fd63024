// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/core_events_fuzzer <corpus
// directory>.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/core_events_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ddprun::rendezvous::FuzzCoreEvents(data, size);
  return 0;
}
