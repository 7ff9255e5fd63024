#ifndef DDPRUN_BASE_CHECK_H_
#define DDPRUN_BASE_CHECK_H_

#include "absl/strings/string_view.h"

namespace ddprun {

// Prints "file:line: check failed: condition: detail" to stderr and aborts. Threads: any.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              absl::string_view detail);

}  // namespace ddprun

// Asserts one of our own invariants, in release builds too. Never for bytes from the wire, a file
// or a child process: those are errors to return.
#define DDPRUN_CHECK(condition, detail)                                              \
  do {                                                                               \
    if (!(condition)) ::ddprun::CheckFailed(__FILE__, __LINE__, #condition, detail); \
  } while (false)

#endif  // DDPRUN_BASE_CHECK_H_
