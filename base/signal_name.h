#ifndef DDPRUN_BASE_SIGNAL_NAME_H_
#define DDPRUN_BASE_SIGNAL_NAME_H_

#include <string>

namespace ddprun {

// The name of a signal: "SIGKILL" for 9, "SIGRTMIN+2" for 36, "signal 99" for what is none.
// Threads: any.
std::string SignalName(int signal_number);

}  // namespace ddprun

#endif  // DDPRUN_BASE_SIGNAL_NAME_H_
