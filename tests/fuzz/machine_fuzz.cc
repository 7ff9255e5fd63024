#include "tests/fuzz/machine_fuzz.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/text.h"
#include "launcher/doctor/core/machine_findings.h"
#include "launcher/doctor/core/machine_parsers.h"
#include "launcher/doctor/core/machine_text.h"
#include "launcher/doctor/machine_reports.h"

namespace ddprun::launcher {
namespace {

MachineFacts FactsOf(const std::vector<std::string>& parts) {
  MachineFacts facts;
  facts.memory = ParseMemInfo(parts[0]);
  facts.limits = ParseLimits(parts[1]);
  facts.versions.system = ParseSystemName(parts[2]);
  facts.driver.version = ParseDriverVersion(parts[3]);
  facts.cpu.model = ParseCpuModel(parts[4]);
  facts.memory.cgroup_limit = ParseMemoryLimit(parts[5]);
  facts.python = ParsePythonAnswer(parts[6]);
  facts.python.path = "python3";
  facts.rdma_ports.push_back({.device = "mlx5_0", .state = ParsePortState(parts[7])});
  facts.gpus.assign(2, {.name = "GPU", .uuid = "GPU-1", .memory = 1, .memory_free = 1});
  facts.environment["CUDA_VISIBLE_DEVICES"] = parts[8];
  facts.environment["NCCL_SOCKET_IFNAME"] = parts[9];
  return facts;
}

// As the report of another node.
void CheckReport(absl::string_view bytes) {
  if (const auto found = ReadFindings(bytes); found.ok()) {
    DDPRUN_CHECK(!NodesDoctorText({*found}, "").empty(), "no text");
  }
  const auto machine = SummarizeReport(bytes);
  if (!machine.ok()) return;
  const std::string text = ComparisonText({*machine, {.host = "host1", .traits = {}}});
  DDPRUN_CHECK(Printable(text) == text, "what others wrote could steer the terminal");
  DDPRUN_CHECK(!ComparisonJson({std::string(bytes)}, {*machine}).empty(), "no JSON");
}

}  // namespace

bool ReadMachineBytes(absl::string_view bytes) {
  constexpr size_t kParts = 10;
  std::vector<std::string> parts = absl::StrSplit(bytes, absl::MaxSplits('\0', kParts - 1));
  parts.resize(kParts);
  const MachineFacts facts = FactsOf(parts);
  DDPRUN_CHECK(VisibleGpus(facts).size() <= parts[8].size() + 1, "more GPUs than entries");
  const std::string report = EnvText(facts, AdviseForHardware(facts, {.samples = 1000}), {});
  DDPRUN_CHECK(Printable(report) == report, "what others wrote could steer the terminal");
  const std::vector<Finding> findings = FindTroubles(facts);
  const std::string advice = DoctorText(facts, findings);
  for (const Finding& finding : findings) {
    DDPRUN_CHECK(!finding.id.empty() && !finding.what.empty() && !finding.why.empty(), finding.id);
  }
  DDPRUN_CHECK(Printable(advice) == advice, "what others wrote could steer the terminal");
  CheckReport(bytes);
  return facts.memory.total > 0 || facts.limits.has_value() || !facts.versions.system.empty() ||
         !facts.python.torch.empty();
}

}  // namespace ddprun::launcher
