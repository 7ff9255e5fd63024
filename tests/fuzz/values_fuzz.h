#ifndef DDPRUN_TESTS_FUZZ_VALUES_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_VALUES_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Reads the bytes as a value with a grammar of its own: the first byte chooses between
// --rdzv_conf, --redirects, ranks, lists of texts and signals ('c', 's', 'r', 't', 'g').
// Checks what each reader promises. Returns: whether it was a value. Aborts if a promise is broken.
bool ReadValueBytes(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_VALUES_FUZZ_H_
