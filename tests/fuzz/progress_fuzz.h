#ifndef DDPRUN_TESTS_FUZZ_PROGRESS_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_PROGRESS_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddprun::launcher {

struct ProgressFuzzResult {
  std::string problem;    // "" = none
  uint64_t reports = 0;   // findings for the service
  uint64_t suspects = 0;  // in them
};

// Plays the bytes as what workers store in their pages of progress, which may be anything, and as
// what /proc shows of them: into the detector of hangs and the book of time. What comes of it is
// taken by the service, no look is wanted at once again, and no time is lost or booked twice.
ProgressFuzzResult FuzzProgress(const uint8_t* data, size_t size);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_PROGRESS_FUZZ_H_
