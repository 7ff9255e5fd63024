#include "launcher/warm/park_program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/keeper/exec_child.h"
#include "launcher/warm/park_recipe.h"

namespace ddprun::launcher {

std::string ProgramFile(const LaunchPlan& plan, const EnvironmentLookup& environment) {
  std::vector<std::string> variables = CommonEnvironment(plan, environment);
  if (const auto path = environment("PATH"); path.has_value()) {
    variables.insert(variables.begin(), absl::StrCat("PATH=", *path));
  }
  for (const std::string& candidate : ExecCandidates(plan.argv.front(), variables)) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

std::string ProgramSignature(const std::string& file) {
  struct stat facts {};
  if (file.empty() || stat(file.c_str(), &facts) != 0) return "";
  return absl::StrCat("program ", facts.st_ino, " ", facts.st_size, " ", facts.st_mtim.tv_sec, ".",
                      facts.st_mtim.tv_nsec);
}

bool Runs(pid_t pid, const std::string& file) {
  struct stat running {};
  struct stat wanted {};
  return stat(absl::StrCat("/proc/", pid, "/exe").c_str(), &running) == 0 &&
         stat(file.c_str(), &wanted) == 0 && running.st_dev == wanted.st_dev &&
         running.st_ino == wanted.st_ino;
}

ParkRequest PrepareParkedProgram(const LaunchPlan& plan, const EnvironmentLookup& environment) {
  ParkRequest request;
  request.argv = WorkerArguments(plan, 0);
  request.environment = CommonEnvironment(plan, environment);
  request.unset = VaryingVariables(plan);
  // Symbols are looked up while it is loaded, not by each worker when it first calls them, while
  // others wait for it (ld.so(8)). Behind the room it goes when a worker gets its environment.
  request.tail = {RoomVariable(), "LD_BIND_NOW=1"};
  return request;
}

}  // namespace ddprun::launcher
