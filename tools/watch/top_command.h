#ifndef DDPRUN_TOOLS_WATCH_TOP_COMMAND_H_
#define DDPRUN_TOOLS_WATCH_TOP_COMMAND_H_

#include "tools/watch/operate_options.h"

namespace ddprun::launcher {

// `ddprun top`: shows a job on the whole terminal, updated until q, Ctrl-C or the end of the
// service. Returns the exit status: 0, or 1 with one line on stderr.
int ShowTop(const TopOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_TOP_COMMAND_H_
