// Preloaded into a program: NCCL takes each process for one on a host of its own, so that several
// may use one GPU, and connects them by sockets. NCCL_HOSTID in the environment doesn't do it:
// workers that are forked ahead of their start get their own environment later.
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
