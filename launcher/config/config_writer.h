#ifndef DDPRUN_LAUNCHER_CONFIG_CONFIG_WRITER_H_
#define DDPRUN_LAUNCHER_CONFIG_CONFIG_WRITER_H_

#include "launcher/config/config_command.h"
#include "launcher/options/host.h"

namespace ddprun::launcher {

// Carries out `ddprun config`: asks on the terminal where there is nothing to write yet, and writes
// the file, whole or not at all. Returns: the exit status. Threads: main.
int WriteConfig(ConfigOptions options, const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_CONFIG_WRITER_H_
