#ifndef DDPRUN_TESTS_WORKER_PROBE_ARGUMENTS_H_
#define DDPRUN_TESTS_WORKER_PROBE_ARGUMENTS_H_

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/null_terminated.h"
#include "ddprun/run_worker.h"
#include "tests/worker/parked_probe.h"
#include "worker/env/parked_program.h"

namespace ddprun::testing {

// The arguments of a probe, also of one that was forked: all forks of a process have that one's
// command line.
class ProbeArguments {
 public:
  ProbeArguments(int argc, char** argv) : words_(argv, argv + argc) {
    DDPRUN_CHECK(worker::CanPark(), "the linker takes what waits before main() with this");
    if (const char* const text = std::getenv(kProbeArguments)) {
      words_ = absl::StrSplit(text, kBetweenArguments);
    }
    pointers_ = NullTerminated(words_);
  }
  ProbeArguments(const ProbeArguments&) = delete;
  ProbeArguments& operator=(const ProbeArguments&) = delete;

  int argc() const { return static_cast<int>(words_.size()); }
  char** argv() { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

// What main() is to return. A fork ends at once instead: LibTorch takes its tables down again in
// 0.15 s of a processor, as much as many a test. Programs that are executed, and the examples, end
// as users' do.
inline int EndProbe(int status) {
  if (std::getenv(kProbeArguments) == nullptr) return status;
  std::cout << std::flush;
  std::fflush(nullptr);
  std::_Exit(status);
}

// Calls RunWorker() with a probe's arguments.
inline int RunProbe(int argc, char** argv, const std::function<absl::Status(int, char**)>& body) {
  ProbeArguments arguments(argc, argv);
  return EndProbe(RunWorker(arguments.argc(), arguments.argv(), body));
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_PROBE_ARGUMENTS_H_
