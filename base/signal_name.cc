#include "base/signal_name.h"

#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ddprun {

std::string SignalName(int signal_number) {
  if (const char* name = sigabbrev_np(signal_number); name != nullptr) {
    return absl::StrCat("SIG", name);
  }
  if (signal_number >= SIGRTMIN && signal_number <= SIGRTMAX) {
    const int above = signal_number - SIGRTMIN;
    return above == 0 ? "SIGRTMIN" : absl::StrCat("SIGRTMIN+", above);
  }
  return absl::StrCat("signal ", signal_number);
}

}  // namespace ddprun
