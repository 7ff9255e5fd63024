// A library that does something when it is loaded, before the program that needs it runs: it sets
// FROM_LIBRARY, and takes UNWANTED away; with EARLY_FILE it opens a file, with EARLY_THREAD it
// starts a thread.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

extern "C" void EarlyLibrary() {}

namespace {

[[gnu::constructor]] void OnLoad() {
  setenv("FROM_LIBRARY", "yes", 1);
  unsetenv("UNWANTED");
  if (std::getenv("EARLY_FILE") != nullptr && open("/dev/zero", O_RDONLY | O_CLOEXEC) < 0) abort();
  if (std::getenv("EARLY_THREAD") != nullptr) std::thread([] { pause(); }).detach();
}

}  // namespace
