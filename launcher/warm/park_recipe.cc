#include "launcher/warm/park_recipe.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/keeper/exec_child.h"
#include "launcher/os/files.h"

namespace ddprun::launcher {
namespace {

// The room for variables that a worker has besides those of its fork server.
constexpr size_t kRoomBytes = 16 << 10;

}  // namespace

ParkRecipe MakeParkRecipe(
    const LaunchPlan& plan, const EnvironmentLookup& environment,
    const std::function<void(std::vector<std::string>* environment)>& complete) {
  ParkRecipe recipe;
  recipe.argv = WorkerArguments(plan, 0);
  recipe.environment = CommonEnvironment(plan, environment);
  if (complete) complete(&recipe.environment);
  recipe.varying = VaryingVariables(plan);
  recipe.python_path = environment("PYTHONPATH");
  recipe.preload = plan.warm.preload;
  std::erase_if(recipe.environment, [&recipe](const std::string& variable) {
    absl::string_view value = variable;
    if (!absl::ConsumePrefix(&value, "PYTHONPATH=")) return false;
    recipe.python_path = std::string(value);
    return true;
  });
  return recipe;
}

absl::Status WriteParkHook(const std::string& folder) {
  DDPRUN_RETURN_IF_ERROR(MakeFolders(folder + "/hook"));
  DDPRUN_RETURN_IF_ERROR(WriteFile(folder + "/hook/parked.py", kWarmParked));
  return WriteFile(folder + "/hook/sitecustomize.py", kWarmBootstrap);
}

absl::StatusOr<ParkRequest> PreparePark(const ParkRecipe& recipe, const Learned& learned,
                                        const std::string& folder, absl::string_view list,
                                        bool idle) {
  const std::string path = absl::StrCat(folder, "/", list);
  DDPRUN_RETURN_IF_ERROR(WriteFile(path, ParkedText(learned, recipe.preload, recipe.varying)));
  ParkRequest request;
  request.argv = recipe.argv;
  request.environment = recipe.environment;
  request.unset = recipe.varying;
  request.unset.emplace_back("PYTHONPATH");
  request.tail = {absl::StrCat("DDPRUN_WARM_LEARNED=", path)};
  if (idle) request.tail.emplace_back("DDPRUN_WARM_IDLE=1");
  const std::string python_path = recipe.python_path.value_or("");
  if (recipe.python_path.has_value()) {
    request.tail.push_back(absl::StrCat("DDPRUN_WARM_PYTHONPATH=", python_path));
  }
  request.tail.push_back(
      absl::StrCat("PYTHONPATH=", folder, "/hook", python_path.empty() ? "" : ":", python_path));
  request.tail.push_back(RoomVariable());
  return request;
}

std::string RoomVariable() {
  return absl::StrCat("DDPRUN_WARM_ROOM=", std::string(kRoomBytes, '.'));
}

std::optional<Learned> ReadKeptFile(const std::string& path) {
  const auto text = ReadFile(path, kLearnedBytesMax);
  if (!text.ok()) return std::nullopt;
  absl::StatusOr<Learned> learned = ParseLearned(*text);
  if (learned.ok()) return *std::move(learned);
  // Nothing is lost: it is learned anew.
  Log(LogLevel::kInfo,
      absl::StrCat("'", path, "' is damaged, or of another release, and is not used: ",
                   learned.status().message()));
  return std::nullopt;
}

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
