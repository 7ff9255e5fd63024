#ifndef DDPRUN_LAUNCHER_CLI_VERSION_TEXT_H_
#define DDPRUN_LAUNCHER_CLI_VERSION_TEXT_H_

#include <string>

#include "launcher/cli/build_facts.h"

namespace ddprun::launcher {

// The output of `ddprun --version`. Its first line, "ddprun 0.1.0", never changes, because scripts
// read it; a line for each further fact follows. Params: glibc: NeededGlibc().
std::string VersionText(const BuildFacts& facts, const std::string& glibc);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_VERSION_TEXT_H_
