#ifndef DDPRUN_TESTS_FUZZ_SLURM_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_SLURM_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Reads the bytes as a text of Slurm's: the first byte chooses between host lists, counts, times
// and the record of a job that is requeued ('h', 'c', 't', 'r'). Checks what each reader promises.
// Returns: whether it was one. Aborts if a promise is broken.
bool ReadSlurmBytes(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_SLURM_FUZZ_H_
