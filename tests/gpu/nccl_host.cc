// Preloaded into a program: tells NCCL that each process is on a host of its own, so that it lets
// several use one GPU, and connects them by sockets. In place of the variable, since workers that
// are forked ahead of their start get the environment of their own later.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

extern "C" char* getenv(const char* name) noexcept {
  static std::array<char, 16> host;
  if (std::strcmp(name, "NCCL_HOSTID") == 0) {
    std::snprintf(host.data(), host.size(), "%d", getpid());
    return host.data();
  }
  static auto* const real = reinterpret_cast<char* (*)(const char*)>(dlsym(RTLD_NEXT, "getenv"));
  return real(name);
}
