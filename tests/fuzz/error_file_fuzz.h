#ifndef DDPRUN_TESTS_FUZZ_ERROR_FILE_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_ERROR_FILE_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Reads `bytes` as an error file and aborts when that breaks a promise: there is always an answer;
// what is no error file says so; the launcher's own file made of it is one again, with the code.
// Returns true when the bytes were an error file; for tests that want some to be.
bool FuzzErrorFile(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_ERROR_FILE_FUZZ_H_
