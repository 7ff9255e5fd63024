#include "launcher/core/signal_policy.h"

namespace ddprun::launcher {

std::vector<int> PassedOnSignals() {
  std::vector<int> numbers = {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR};
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) numbers.push_back(number);
  return numbers;
}

std::vector<int> WatchedSignals(const SignalPolicy& policy) {
  std::set<int> numbers = policy.ending;
  numbers.insert(policy.preempting.begin(), policy.preempting.end());
  for (const int number : PassedOnSignals()) numbers.insert(number);
  return {numbers.begin(), numbers.end()};
}

}  // namespace ddprun::launcher
