#ifndef DDPRUN_TESTS_FUZZ_MACHINE_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_MACHINE_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Reads the bytes as the files of a machine and as Python's answer: parts divided by zero bytes, in
// the order of machine_parsers.h, CUDA_VISIBLE_DEVICES and a network interface's variable last.
// Also as the report of another node's ddprun env. Checks that whatever comes of them can be shown
// and judged. Returns: whether any of it was understood. Aborts if a promise is broken.
bool ReadMachineBytes(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_MACHINE_FUZZ_H_
