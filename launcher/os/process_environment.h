#ifndef DDPRUN_LAUNCHER_OS_PROCESS_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_OS_PROCESS_ENVIRONMENT_H_

#include <cstdlib>
#include <optional>
#include <string>

namespace ddprun::launcher {

// getenv(3) as an EnvironmentLookup. Threads: any, while no thread calls setenv(3).
inline std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PROCESS_ENVIRONMENT_H_
