#ifndef DDPRUN_TESTS_WORKER_PARKED_PROBE_H_
#define DDPRUN_TESTS_WORKER_PARKED_PROBE_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddprun::testing {

// The variable with the arguments of a fork, and their separator.
inline constexpr char kProbeArguments[] = "DDPRUN_PROBE_ARGUMENTS";
inline constexpr char kBetweenArguments = '\x1f';

// Starts a probe as a fork of one that has loaded LibTorch already and waits before its main(), as
// a node with --warm on starts its workers; that one is started when a program is
// first asked for, and ends with this process. Loading costs 0.3 s of a processor, a fork 3 ms.
//
// `command`: the probe, which must hand main()'s arguments through ProbeArguments()
// (tests/worker/probe_arguments.h), and its arguments. `variables`: the whole environment. What
// libraries read while they are loaded (OMP_NUM_THREADS) is that of the first process. The output
// goes to the descriptor `output`.
// `on_one_cpu`: each on the next one. Then the shared-memory backend waits for its peers asleep, as
// where ranks outnumber CPUs; tests share the machine, and half of a training's time went into
// waiting busily.
// Returns our child, which runs; what can't wait before its main() is a mistake of the test's.
// Threads: the first one alone, with which the kernel ends what it has started.
pid_t ForkParked(const std::vector<std::string>& command, std::vector<std::string> variables,
                 int output, bool on_one_cpu);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_PARKED_PROBE_H_
