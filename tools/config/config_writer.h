#ifndef DDPRUN_TOOLS_CONFIG_CONFIG_WRITER_H_
#define DDPRUN_TOOLS_CONFIG_CONFIG_WRITER_H_

#include "launcher/options/host.h"
#include "tools/config/config_command.h"

namespace ddprun::launcher {

// Runs `ddprun config`: asks on the terminal if no options are given, and writes the file
// atomically. Returns: the exit status. Threads: main.
int WriteConfig(ConfigOptions options, const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CONFIG_CONFIG_WRITER_H_
