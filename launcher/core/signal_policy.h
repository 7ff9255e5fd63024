#ifndef DDPRUN_LAUNCHER_CORE_SIGNAL_POLICY_H_
#define DDPRUN_LAUNCHER_CORE_SIGNAL_POLICY_H_

#include <csignal>
#include <set>
#include <vector>

namespace ddprun::launcher {

// An agent's response to each signal that it gets; docs/SIGNALS.md has it as a table.
//
// SIGTERM preempts only programs that ask for stop steps, because they have asked to be stopped
// that way. All others see torchrun's TERM. If SIGTERM always preempted, a killed plain script
// would end with 75, and a killed job of fixed size with 75 on all its nodes.
struct SignalPolicy {
  // --signals_to_handle: these stop the workers with the same signal, and the agent leaves.
  std::set<int> ending = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  // --preempt_signals: this node is about to be taken away; all workers stop at one step (R14).
  std::set<int> preempting;
  // SIGTERM, an ending signal, also preempts if all workers of the node ask for a stop step, unless
  // --preempt_signals is given.
  bool term_preempts_who_asks = false;

  bool Ends(int number) const { return ending.contains(number) || preempting.contains(number); }
  bool Preempts(int number) const { return preempting.contains(number); }
  // Ctrl-C ends the job on all nodes.
  bool EndsJob(int number) const { return number == SIGINT && !Preempts(number); }
};

// Signals that come from outside and don't ask for an end: an agent passes them on to its workers.
// SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR and the real-time ones. Signals that
// the kernel sends for a process's own faults, and those ignored by default, aren't among them.
std::vector<int> PassedOnSignals();

// What an agent of this policy watches: its ending and preempting signals and the passed on ones,
// in ascending order. TERM, INT, HUP and QUIT outside the policy keep their default, so that no
// agent is beyond the reach of a plain kill(1); its keeper kills the workers then.
std::vector<int> WatchedSignals(const SignalPolicy& policy);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SIGNAL_POLICY_H_
