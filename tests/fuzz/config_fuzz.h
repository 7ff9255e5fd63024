#ifndef DDPRUN_TESTS_FUZZ_CONFIG_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_CONFIG_FUZZ_H_

#include "absl/strings/string_view.h"
#include "tests/fuzz/cli_fuzz.h"

namespace ddprun::launcher {

// Takes the bytes as the file of --config, and checks the tree that they become, what every command
// line keeps (cli_fuzz.h), and that any text survives being written as YAML. Aborts if not.
CliOutcome ParseConfigBytes(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_CONFIG_FUZZ_H_
