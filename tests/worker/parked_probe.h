#ifndef DDPRUN_TESTS_WORKER_PARKED_PROBE_H_
#define DDPRUN_TESTS_WORKER_PARKED_PROBE_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddprun::testing {

// The variable with the arguments of a fork, and what is between them.
inline constexpr char kProbeArguments[] = "DDPRUN_PROBE_ARGUMENTS";
inline constexpr char kBetweenArguments = '\x1f';

// Starts a probe as a fork of one that has loaded LibTorch already and waits before its main(), as
// a node with --warm on starts its workers (decision 83); that one is started when a program is
// first asked for, and ends with this process. Loading costs 0.3 s of a processor, a fork 3 ms.
//
// `command`: the probe, which must hand main()'s arguments through ProbeArguments()
// (tests/worker/probe_arguments.h), and its arguments. `variables`: the whole environment. What
// libraries read while they are loaded (OMP_NUM_THREADS) is that of the first process. The output
// goes to the descriptor `output`.
// Returns our child, which runs; what can't wait before its main() is a mistake of the test's.
// Threads: the first one alone, with which the kernel ends what it has started.
pid_t ForkParked(const std::vector<std::string>& command, std::vector<std::string> variables,
                 int output);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_PARKED_PROBE_H_
