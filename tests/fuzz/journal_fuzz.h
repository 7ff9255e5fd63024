#ifndef DDPRUN_TESTS_FUZZ_JOURNAL_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_JOURNAL_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// Reads `bytes` as a job's record from a journal. What is taken must come back equal from a second
// trip; aborts if it doesn't. Returns whether it was taken.
bool ReadRecord(absl::string_view bytes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_FUZZ_JOURNAL_FUZZ_H_
