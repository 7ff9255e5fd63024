#ifndef DDPRUN_TESTS_UNIT_LAUNCHER_CLI_FAKE_HOST_H_
#define DDPRUN_TESTS_UNIT_LAUNCHER_CLI_FAKE_HOST_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/options.h"

namespace ddprun::launcher {

// A machine that is what the test says: 6 CPUs, no GPU, train.py and python3. Each CPU is a core of
// its own in one of two NUMA nodes, the even ones in node 0.
class FakeHost : public Host {
 public:
  uint32_t cpus = 6;
  uint32_t gpus = 0;
  std::vector<std::string> gpu_models;
  absl::Status topology_error;
  std::map<std::string, PathKind> paths = {
      {"train.py", PathKind::kFile},        {"/opt/app/train.py", PathKind::kFile},
      {"secret.py", PathKind::kFile},       {"app", PathKind::kDirectory},
      {"app/__main__.py", PathKind::kFile}, {"empty", PathKind::kDirectory},
      {"logs", PathKind::kDirectory},       {"run.sh", PathKind::kFile},
      {"env.sh", PathKind::kFile},          {"a.out", PathKind::kFile},
      {"./train.py", PathKind::kFile},      {"uv.py", PathKind::kFile},
      {"main.cc", PathKind::kFile}};
  std::string unreadable = "secret.py";
  std::map<std::string, std::string> programs = {
      {"python3", "/usr/bin/python3"}, {"python", "/usr/bin/python"},
      {"echo", "/bin/echo"},           {"/bin/echo", "/bin/echo"},
      {"./a.out", "./a.out"},          {"/proc/self/exe", "/usr/bin/ddprun"}};
  std::map<std::string, std::string> files = {{"token", " s3cret\n"},
                                              {"blank", " \n"},
                                              {"run.sh", "#!/bin/bash\necho hello\n"},
                                              {"env.sh", "#! /usr/bin/env -S A=b bash -eu\n"},
                                              {"a.out",
                                               "\x7f"
                                               "ELF\x02"},
                                              {"uv.py", "#!/usr/bin/env -S uv run\n"}};

  std::vector<std::string> variables;

  std::vector<std::string> VariableNames() const override { return variables; }
  uint32_t CpuCount() const override { return cpus; }
  uint32_t CudaCount() const override { return gpus; }
  absl::StatusOr<CpuTopology> Topology() const override {
    if (!topology_error.ok()) return topology_error;
    CpuTopology topology;
    for (uint32_t cpu = 0; cpu < 6; ++cpu) {
      topology.cpus.push_back({.number = cpu, .core = cpu, .package = cpu % 2, .cache = cpu});
      topology.numa_nodes[cpu % 2].insert(cpu);
      topology.allowed.insert(cpu);
    }
    return topology;
  }
  // GPU k is at node k % 2.
  absl::StatusOr<std::vector<GpuPlace>> Gpus(
      const std::optional<std::vector<std::string>>& visible) const override {
    std::vector<GpuPlace> places;
    for (uint32_t k = 0; k < gpus; ++k) {
      uint32_t number = k;
      if (visible.has_value() &&
          (k >= visible->size() || !absl::SimpleAtoi((*visible)[k], &number))) {
        break;
      }
      places.push_back({.pci_id = absl::StrCat("0000:0", number, ":00.0"),
                        .numa_node = static_cast<int>(number % 2),
                        .model = number < gpu_models.size() ? gpu_models[number] : ""});
    }
    return places;
  }
  PathKind KindOf(const std::string& path) const override {
    const auto found = paths.find(path);
    return found == paths.end() ? PathKind::kMissing : found->second;
  }
  // Only the names in the folder itself.
  std::vector<std::string> NamesIn(const std::string& folder) const override {
    std::vector<std::string> names;
    for (const auto& [path, kind] : paths) {
      if (folder == "." && path.find('/') == std::string::npos) names.push_back(path);
    }
    return names;
  }
  absl::Status CheckReadable(const std::string& path) const override {
    if (path == unreadable) return Error(path, "Permission denied (errno 13, EACCES)");
    if (paths.count(path) > 0) return absl::OkStatus();
    return Error(path, "No such file or directory (errno 2, ENOENT)");
  }
  absl::StatusOr<std::string> FindProgram(const std::string& name) const override {
    const auto found = programs.find(name);
    if (found != programs.end()) return found->second;
    return Error(name, "No such file or directory (errno 2, ENOENT)");
  }
  absl::StatusOr<std::string> ReadFile(const std::string& path) const override {
    const auto found = files.find(path);
    if (found != files.end()) return found->second;
    return Error(path, "No such file or directory (errno 2, ENOENT)");
  }
  // What squeue says; a variable's time counts from time_now.
  std::optional<absl::Duration> time_left;
  int64_t time_now = 1'000'000;
  std::optional<absl::Duration> SlurmTimeLeft(const std::string&, int64_t end_time) const override {
    return end_time > 0 ? absl::Seconds(end_time - time_now) : time_left;
  }
  std::map<std::string, std::string> slurm_addresses;  // of nodes whose names don't resolve
  std::string SlurmNodeAddress(const std::string& node) const override {
    const auto found = slurm_addresses.find(node);
    return found == slurm_addresses.end() ? node : found->second;
  }
  std::map<std::string, uint32_t> torch_devices;  // by kind
  bool other_accelerators = false;
  absl::StatusOr<uint32_t> TorchDevices(const std::string&,
                                        const std::string& kind) const override {
    const auto found = torch_devices.find(kind);
    if (found != torch_devices.end()) return found->second;
    return absl::NotFoundError("the torch of python3 finds no such device");
  }
  bool HasOtherAccelerators() const override { return other_accelerators; }
  std::string program_folder = "/opt/venv/bin";
  std::string ProgramFolder() const override { return program_folder; }
  std::string hostname = "host0";
  std::string HostName() const override { return hostname; }
  std::string RandomId() const override { return "00000000-0000-4000-8000-000000000001"; }

 private:
  static absl::Status Error(const std::string& path, const std::string& what) {
    return absl::NotFoundError(absl::StrCat("'", path, "': ", what));
  }
};

using Variables = std::map<std::string, std::string>;

inline CommandLine Parse(const std::vector<std::string>& arguments, const Variables& variables = {},
                         const FakeHost& host = {}) {
  return ParseCommandLine(
      arguments,
      [&variables](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      host);
}

// Splits a line of words without blanks in them: "--nnodes 2 train.py".
inline std::vector<std::string> Words(const std::string& line) {
  return absl::StrSplit(line, ' ', absl::SkipEmpty());
}

inline LaunchPlan PlanOf(const CommandLine& parsed) {
  if (const auto* exit = std::get_if<ExitNow>(&parsed.command); exit != nullptr) {
    ADD_FAILURE() << "no plan but exit " << exit->status << ": " << exit->text;
  }
  const auto* plan = std::get_if<LaunchPlan>(&parsed.command);
  return plan == nullptr ? LaunchPlan() : *plan;
}
inline LaunchPlan PlanOf(const std::string& line, const Variables& variables = {},
                         const FakeHost& host = {}) {
  return PlanOf(Parse(Words(line), variables, host));
}

// Returns the exit of a command line; status -1 when it has none.
inline ExitNow ExitOf(const CommandLine& parsed) {
  const auto* exit = std::get_if<ExitNow>(&parsed.command);
  return exit == nullptr ? ExitNow{.status = -1, .text = "there is a plan"} : *exit;
}

// A command line that must end with `status` and a line that holds `text`.
struct Refused {
  const char* line;
  int status;
  const char* text;
};

inline void ExpectRefused(const Refused& c, const Variables& variables = {},
                          const FakeHost& host = {}) {
  const ExitNow exit = ExitOf(Parse(Words(c.line), variables, host));
  EXPECT_EQ(exit.status, c.status) << c.line << "\n" << exit.text;
  EXPECT_THAT(exit.text, testing::HasSubstr(c.text)) << c.line;
  EXPECT_THAT(exit.text, testing::StartsWith("ddprun: error: ")) << c.line;
  EXPECT_TRUE(exit.to_stderr) << c.line;
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_UNIT_LAUNCHER_CLI_FAKE_HOST_H_
