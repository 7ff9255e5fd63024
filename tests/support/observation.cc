#include "tests/support/observation.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::testing {
namespace {

std::string Value(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "(unset)";
}

// What a program's own initializers see, before main().
const std::string rank_before_main = Value("RANK");  // NOLINT(cert-err58-cpp)

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> Sorted(char** strings) {
  std::vector<std::string> copies;
  for (; *strings != nullptr; ++strings) copies.emplace_back(*strings);
  std::sort(copies.begin(), copies.end());
  return copies;
}

std::vector<std::string> InBlock() {
  const std::string text = TextOf("/proc/self/environ");
  std::vector<std::string> variables = absl::StrSplit(text, '\0', absl::SkipEmpty());
  std::sort(variables.begin(), variables.end());
  return variables;
}

// {number: what it is}, without those that gRPC or we have opened meanwhile: those from before main
// are the lowest.
nlohmann::json Descriptors() {
  nlohmann::json seen = nlohmann::json::object();
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (error || absl::StartsWith(target, "/proc/")) continue;
    seen[entry.path().filename().string()] = target.substr(0, target.find(':'));
  }
  return seen;
}

std::vector<std::string> Status() {
  constexpr std::array<const char*, 8> kNames = {"Umask",  "SigPnd",     "SigBlk",  "SigIgn",
                                                 "SigCgt", "NoNewPrivs", "Threads", "Seccomp"};
  std::vector<std::string> lines;
  for (const auto& line :
       std::vector<std::string>(absl::StrSplit(TextOf("/proc/self/status"), '\n'))) {
    const std::string name = line.substr(0, line.find(':'));
    if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) lines.push_back(line);
  }
  return lines;
}

}  // namespace

nlohmann::json Observe(char** argv, char** environment) {
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof(cpus), &cpus);
  return {{"arguments", Sorted(argv)},
          {"environment", Sorted(environ)},
          {"environment_of_main", Sorted(environment)},
          {"block", InBlock()},
          {"rank_before_main", rank_before_main},
          {"rank", Value("RANK")},
          {"command_line", TextOf("/proc/self/cmdline")},
          {"name", TextOf("/proc/self/comm")},
          {"descriptors", Descriptors()},
          {"terminals", {isatty(0), isatty(1), isatty(2)}},
          {"status", Status()},
          {"limits", TextOf("/proc/self/limits")},
          {"oom_score_adj", TextOf("/proc/self/oom_score_adj")},
          {"cgroup", TextOf("/proc/self/cgroup")},
          {"folder", std::filesystem::current_path().string()},
          {"session", getsid(0) == getpid() && getpgrp() == getpid()},
          {"parent", TextOf(absl::StrCat("/proc/", getppid(), "/comm"))},
          {"nice", getpriority(PRIO_PROCESS, 0)},
          {"policy", sched_getscheduler(0)},
          {"cpus", CPU_COUNT(&cpus)}};
}

}  // namespace ddprun::testing
