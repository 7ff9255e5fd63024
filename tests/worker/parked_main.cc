// A library that is loaded before a program of the runtime, with LD_PRELOAD, and stands between it
// and its main(): tests start programs by it that weren't made for them, such as the examples, as
// forks of one that waits (tests/support/parked.py). A fork has its arguments in a variable, for
// all forks have one command line; and it ends at once, without taking LibTorch's tables down again
// (tests/worker/probe_arguments.h says why). Where the variable is missing nothing is changed.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/null_terminated.h"
#include "tests/worker/parked_probe.h"

namespace {

using Main = int (*)(int, char**, char**);
using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);

Main programs_main = nullptr;

int RunMain(int argc, char** argv, char** variables) {
  const char* const text = std::getenv(ddprun::testing::kProbeArguments);
  if (text == nullptr) return programs_main(argc, argv, variables);
  std::vector<std::string> words(1);
  for (const char* next = text; *next != '\0'; ++next) {
    if (*next == ddprun::testing::kBetweenArguments) {
      words.emplace_back();
    } else {
      words.back() += *next;
    }
  }
  std::vector<char*> pointers = ddprun::NullTerminated(words);
  const int status = programs_main(static_cast<int>(words.size()), pointers.data(), environ);
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

// What a program's first instructions call: it initializes the program, which may wait there for a
// long time, and calls main(). Source: the Linux Standard Base, __libc_start_main.
extern "C" [[gnu::visibility("default")]] int
__libc_start_main(  // NOLINT(bugprone-reserved-identifier)
    Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*linker_fini)(),
    void* stack_end) {
  programs_main = main;
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(RunMain, argc, argv, init, fini, linker_fini, stack_end);
}
