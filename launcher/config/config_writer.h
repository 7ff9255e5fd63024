#ifndef DDPRUN_LAUNCHER_CONFIG_CONFIG_WRITER_H_
#define DDPRUN_LAUNCHER_CONFIG_CONFIG_WRITER_H_

#include "launcher/config/config_command.h"
#include "launcher/options/host.h"

namespace ddprun::launcher {

// Runs `ddprun config`: asks on the terminal if no options are given, and writes the file
// atomically. Returns: the exit status. Threads: main.
int WriteConfig(ConfigOptions options, const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_CONFIG_WRITER_H_
