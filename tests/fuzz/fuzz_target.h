#ifndef DDPRUN_TESTS_FUZZ_FUZZ_TARGET_H_
#define DDPRUN_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

// A fuzz target is one file: what it asserts of any bytes, a short seeded run of that in every
// ordinary test run (…Smoke), and libFuzzer's entry:
//
//   DDPRUN_FUZZER(bytes) { FuzzStore(bytes); }
//
// Preset fuzz builds the entry: build/fuzz/bin/store_fuzzer tests/fuzz/corpus/store.
#ifdef DDPRUN_FUZZER_ENTRY
#define DDPRUN_FUZZER(bytes)                                               \
  static void FuzzOneInput(absl::string_view bytes);                       \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size); \
  int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {           \
    FuzzOneInput({reinterpret_cast<const char*>(data), size});             \
    return 0;                                                              \
  }                                                                        \
  static void FuzzOneInput(absl::string_view bytes)
#else
#define DDPRUN_FUZZER(bytes) [[maybe_unused]] static void FuzzOneInput(absl::string_view bytes)
#endif

#endif  // DDPRUN_TESTS_FUZZ_FUZZ_TARGET_H_
