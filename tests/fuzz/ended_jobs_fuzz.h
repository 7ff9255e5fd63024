#ifndef DDPRUN_TESTS_FUZZ_ENDED_JOBS_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_ENDED_JOBS_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Reads `bytes` as the record of an ended job and aborts when that breaks a promise: a record has a
// name, an outcome and times that can be printed, and what is written of it can be read again.
// Returns true when the bytes were a record; for tests that want some to be.
bool FuzzEndedJob(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_ENDED_JOBS_FUZZ_H_
