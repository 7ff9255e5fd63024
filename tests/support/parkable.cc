// A program that can be started ahead (worker/env/parked_program.h):
//
//   parkable [daemon]
//
// It prints "ready PID RANK FROM_LIBRARY UNWANTED BULK", with "-" for a variable that isn't set and
// the length of the last one, and lives on until it is signalled. `daemon`: before that it prints
// "ready PID" of a process that it has left in a session of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "worker/env/parked_program.h"

extern "C" void EarlyLibrary();

namespace {

const char* Value(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "-";
}

void LeaveDaemon() {
  int told[2];
  if (pipe(told) != 0) abort();
  const pid_t between = fork();
  if (between == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    std::printf("ready %d\n", getpid());
    std::fflush(stdout);
    if (write(told[1], "!", 1) != 1) abort();
    for (;;) pause();
  }
  char byte = 0;
  if (read(told[0], &byte, 1) != 1) abort();
  waitpid(between, nullptr, 0);  // only then it is nobody's child
}

}  // namespace

int main(int argc, char** argv) {
  if (!ddprun::worker::CanPark()) return 2;
  EarlyLibrary();
  if (argc > 1 && std::strcmp(argv[1], "daemon") == 0) LeaveDaemon();
  std::printf("ready %d %s %s %s %zu\n", getpid(), Value("RANK"), Value("FROM_LIBRARY"),
              Value("UNWANTED"), std::strlen(Value("BULK")));
  std::fflush(stdout);
  for (;;) pause();
}
