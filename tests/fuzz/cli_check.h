#ifndef DDPRUN_TESTS_FUZZ_CLI_CHECK_H_
#define DDPRUN_TESTS_FUZZ_CLI_CHECK_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The result of a command line.
enum class CliOutcome { kPlan, kService, kText, kError };

// Parses a command line and checks what every result keeps: errors are one printable line with
// status 1 or 2, plans are within the bounds that the service checks, and their worker's arguments
// are the tail of the command line. Aborts if not.
CliOutcome ParseAnything(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& variables);

// Parses bytes in the same way: words divided by NUL; a first word with '=' is a variable.
CliOutcome ParseBytes(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_CLI_CHECK_H_
