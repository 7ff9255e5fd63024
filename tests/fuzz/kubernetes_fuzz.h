#ifndef DDPRUN_TESTS_FUZZ_KUBERNETES_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_KUBERNETES_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Reads the bytes as a host's name, a newline and a hosts(5) file, and checks what DomainOfHost
// promises. Returns: whether the host has a domain there. Aborts if a promise is broken.
bool ReadHostsBytes(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_KUBERNETES_FUZZ_H_
