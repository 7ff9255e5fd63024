// libFuzzer's entry: cmake --preset fuzz, then build/fuzz/bin/etcd_fuzzer <corpus directory>.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/etcd_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ddprun::rendezvous::ReadEtcdAnswer({reinterpret_cast<const char*>(data), size});
  return 0;
}
