#include "tools/doctor/core/machine_text.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

std::string TraitOf(const MachineSummary& machine, const std::string& name) {
  for (const MachineTrait& trait : machine.traits) {
    if (trait.name == name) return trait.value;
  }
  return "unknown";
}

std::vector<MachineDifference::Side> SidesOf(const std::vector<MachineSummary>& machines,
                                             const std::string& name) {
  std::vector<MachineDifference::Side> sides;
  for (const MachineSummary& machine : machines) {
    std::string value = TraitOf(machine, name);
    const auto side = std::find_if(sides.begin(), sides.end(),
                                   [&](const auto& other) { return other.value == value; });
    if (side == sides.end()) {
      sides.push_back({.value = std::move(value), .hosts = {machine.host}});
    } else {
      side->hosts.push_back(machine.host);
    }
  }
  std::stable_sort(sides.begin(), sides.end(),
                   [](const auto& a, const auto& b) { return a.hosts.size() > b.hosts.size(); });
  return sides;
}

void AppendDifferences(const std::vector<MachineDifference>& differences, bool serious,
                       const char* title, std::string* text) {
  bool titled = false;
  for (const MachineDifference& difference : differences) {
    if (difference.serious != serious) continue;
    if (!titled) absl::StrAppend(text, "\n", title, "\n");
    titled = true;
    absl::StrAppend(text, "  ", difference.name, "\n");
    for (const auto& side : difference.sides) {
      absl::StrAppend(text, "    ", side.value, ": ", absl::StrJoin(side.hosts, ", "), "\n");
    }
  }
}

}  // namespace

std::vector<MachineDifference> CompareMachines(const std::vector<MachineSummary>& machines) {
  std::vector<MachineDifference> differences;
  if (machines.empty()) return differences;
  for (const MachineTrait& trait : machines.front().traits) {
    auto sides = SidesOf(machines, trait.name);
    if (sides.size() < 2) continue;
    differences.push_back(
        {.name = trait.name, .serious = trait.serious, .sides = std::move(sides)});
  }
  std::stable_partition(differences.begin(), differences.end(),
                        [](const MachineDifference& difference) { return difference.serious; });
  return differences;
}

std::string ComparisonText(const std::vector<MachineSummary>& machines) {
  std::vector<std::string> hosts;
  hosts.reserve(machines.size());
  for (const MachineSummary& machine : machines) hosts.push_back(machine.host);
  const std::vector<MachineDifference> differences = CompareMachines(machines);
  std::string text =
      absl::StrCat(CountText(machines.size(), "node"), ": ", absl::StrJoin(hosts, ", "), "\n");
  AppendDifferences(differences, true,
                    "differences that make runs fail, or wait for the slowest node", &text);
  AppendDifferences(differences, false, "other differences", &text);
  if (machines.empty()) return text;
  absl::StrAppend(&text, "\nthe same on all\n");
  for (const MachineTrait& trait : machines.front().traits) {
    if (SidesOf(machines, trait.name).size() > 1) continue;
    absl::StrAppendFormat(&text, "  %-22s %s\n", trait.name, trait.value);
  }
  return text;
}

namespace {

constexpr size_t kHelpColumns = 80;
constexpr size_t kReportColumns = 96;

std::string OrUnknown(const std::string& text) { return text.empty() ? "unknown" : text; }

std::string BytesOrUnknown(const std::optional<uint64_t>& bytes) {
  return bytes.has_value() ? BytesText(*bytes) : "unknown";
}

// 29500 as 29,500.
std::string Thousands(uint64_t number) {
  std::string text = absl::StrCat(number);
  for (size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string EccText(const GpuFacts& gpu) {
  if (!gpu.ecc.has_value()) return "none";
  if (!*gpu.ecc) return "off";
  const uint64_t bad = gpu.ecc_uncorrected.value_or(0);
  const uint64_t good = gpu.ecc_corrected.value_or(0);
  if (bad + good == 0) return "on, no errors";
  return absl::StrCat("on, ", bad, " uncorrected, ", good, " corrected");
}

std::string UsersText(const GpuFacts& gpu) {
  if (gpu.processes.empty()) return "nobody";
  std::vector<std::string> users;
  for (const GpuProcess& process : gpu.processes) {
    users.push_back(process.name.empty()
                        ? absl::StrCat("pid ", process.pid)
                        : absl::StrCat("pid ", process.pid, " (", process.name, ")"));
  }
  return absl::StrJoin(users, ", ");
}

void AppendGpus(const MachineFacts& facts, std::string* text) {
  const DriverFacts& driver = facts.driver;
  absl::StrAppend(text, "\nGPUs: ", facts.gpus.size());
  if (!driver.version.empty()) absl::StrAppend(text, "; driver ", driver.version);
  if (driver.cuda.has_value()) {
    absl::StrAppend(text, ", runs CUDA up to ", CudaVersionText(*driver.cuda));
  }
  if (!driver.why_not.empty()) absl::StrAppend(text, "; ", driver.why_not);
  absl::StrAppend(text, "\n");
  const std::vector<size_t> visible = VisibleGpus(facts);
  for (size_t i = 0; i < facts.gpus.size(); ++i) {
    const GpuFacts& gpu = facts.gpus[i];
    const bool seen = std::find(visible.begin(), visible.end(), i) != visible.end();
    if (!gpu.why_not.empty()) {
      absl::StrAppend(text, "  ", i, "  doesn't answer: ", gpu.why_not, "\n");
      continue;
    }
    absl::StrAppend(text, "  ", i, "  ", gpu.name, ", ", BytesOrUnknown(gpu.memory_free),
                    " free of ", BytesOrUnknown(gpu.memory));
    if (gpu.compute.has_value()) {
      absl::StrAppend(text, ", compute capability ", gpu.compute->major, ".", gpu.compute->minor);
    }
    absl::StrAppend(text, "\n     ECC ", EccText(gpu), "; used by ", UsersText(gpu),
                    gpu.mig.value_or(false) ? "; divided (MIG)" : "",
                    seen ? "" : "; hidden by CUDA_VISIBLE_DEVICES", "\n");
  }
}

void AppendCpus(const MachineFacts& facts, std::string* text) {
  const CpuFacts& cpu = facts.cpu;
  absl::StrAppend(text, "\nCPUs: ", cpu.usable, " of ", cpu.online, " may be used");
  if (cpu.cores > 0) {
    absl::StrAppend(text, "; ", cpu.cores, " cores, ", CountText(cpu.packages, "socket"));
  }
  if (!cpu.model.empty()) absl::StrAppend(text, "; ", cpu.model);
  if (!cpu.why_no_topology.empty()) absl::StrAppend(text, "; ", cpu.why_no_topology);
  absl::StrAppend(text, "\n");
  for (const auto& [node, cpus] : cpu.numa_nodes) {
    absl::StrAppend(text, "  NUMA node ", node, ": ",
                    cpus.empty() ? "memory alone" : absl::StrCat("CPUs ", CpuSetText(cpus)), "\n");
  }
}

void AppendMemory(const MachineFacts& facts, std::string* text) {
  const MemoryFacts& memory = facts.memory;
  absl::StrAppend(text, "\nmemory: ", BytesText(memory.total), ", ", BytesText(memory.available),
                  " available; swap ", BytesText(memory.swap));
  if (memory.cgroup_limit.has_value()) {
    absl::StrAppend(text, "; the cgroup allows ", BytesText(*memory.cgroup_limit));
  }
  absl::StrAppend(text, "\n/dev/shm: ");
  if (facts.shared_memory.has_value()) {
    absl::StrAppend(text, BytesText(facts.shared_memory->total), ", ",
                    BytesText(facts.shared_memory->free), " free\n");
  } else {
    absl::StrAppend(text, "is not there\n");
  }
}

std::string Pair(const LimitPair& limit, bool bytes) {
  const auto show = [bytes](const std::optional<uint64_t>& value) {
    if (!value.has_value()) return std::string("unlimited");
    return bytes ? BytesText(*value) : absl::StrCat(*value);
  };
  const std::string soft = show(limit.soft);
  const std::string hard = show(limit.hard);
  return soft == hard ? soft : absl::StrCat(soft, " (at most ", hard, ")");
}

void AppendLimits(const MachineFacts& facts, std::string* text) {
  if (!facts.limits.has_value()) return;
  absl::StrAppend(text, "limits: open files ", Pair(facts.limits->open_files, false),
                  "; locked memory ", Pair(facts.limits->locked_memory, true), "; processes ",
                  Pair(facts.limits->processes, false), "; core files ",
                  Pair(facts.limits->core_size, true), "\n");
}

void AppendNetwork(const MachineFacts& facts, std::string* text) {
  absl::StrAppend(text, "\nnetwork: ", facts.host.name, " is ",
                  facts.host.addresses.empty() ? OrUnknown(facts.host.why_not)
                                               : absl::StrJoin(facts.host.addresses, ", "),
                  "\n");
  for (const InterfaceFacts& interface : facts.interfaces) {
    absl::StrAppend(text, "  ", interface.name, interface.up ? "  up" : "  down");
    if (interface.speed_mbit.has_value()) {
      absl::StrAppendFormat(text, "  %g Gbit/s", *interface.speed_mbit / 1e3);
    }
    absl::StrAppend(
        text, "  mtu ", interface.mtu, "  ",
        interface.addresses.empty() ? "no address" : absl::StrJoin(interface.addresses, ", "),
        "\n");
  }
  for (const RdmaPort& port : facts.rdma_ports) {
    absl::StrAppend(text, "  ", port.device, " port ", port.port, "  ", OrUnknown(port.state), "  ",
                    OrUnknown(port.rate), "  ", OrUnknown(port.link_layer), "\n");
  }
}

void AppendSoftware(const MachineFacts& facts, std::string* text) {
  if (facts.clock.has_value()) {
    absl::StrAppend(text, "\nclock: ",
                    facts.clock->synchronised ? absl::StrFormat("synchronised, at most %.3g ms off",
                                                                facts.clock->error_ms)
                                              : "not synchronised",
                    "\n");
  }
  const PythonFacts& python = facts.python;
  const auto there = [](const std::string& version) { return version.empty() ? "none" : version; };
  if (python.path.empty()) {
    absl::StrAppend(text, "python: there is none in PATH\n");
  } else if (!python.why_not.empty()) {
    absl::StrAppend(text, "python: ", python.path, "; ", python.why_not, "\n");
  } else {
    absl::StrAppend(text, "python: ", OrUnknown(python.version), " (", python.path, "); torch ",
                    there(python.torch), ", built for CUDA ", there(python.torch_cuda), "; NCCL ",
                    there(python.nccl), "; DeepSpeed ", there(python.deepspeed), "\n");
  }
  for (const auto& [name, value] : facts.environment) {
    absl::StrAppend(text, "variable: ", name, "=", Shown(value, 200), "\n");
  }
}

void AppendAdvice(const HardwareAdvice& advice, const AdviceQuestion& question, std::string* text) {
  absl::StrAppendFormat(text, "\nadvice for %s of %.1f GB\n", CountText(advice.gpus, "GPU"),
                        static_cast<double>(advice.memory) / 1e9);
  const auto line = [text](const char* name, const std::string& value) {
    absl::StrAppendFormat(text, "  %-28s %s\n", name, value);
  };
  line("Distributed environment", advice.gpus == 1 ? "NO" : "MULTI_GPU");
  line("Number of processes", absl::StrCat(advice.gpus));
  line("Number of GPUs", absl::StrCat(advice.gpus));
  line("method", advice.method);
  line("batch per GPU", absl::StrCat(advice.batch, question.batch.has_value() ? " (yours)" : ""));
  line("gradient accumulation", absl::StrCat(advice.accumulation));
  line("effective batch", absl::StrCat(Thousands(advice.effective_batch), " = ", advice.batch,
                                       " x ", advice.gpus, " x ", advice.accumulation));
  line("mixed precision", advice.precision);
  line("data loader workers per GPU", absl::StrCat(advice.loader_workers));
  line("OMP threads per process", absl::StrCat(advice.omp_threads));
  if (advice.steps_per_epoch.has_value()) {
    line("steps per epoch", absl::StrCat(Thousands(*advice.steps_per_epoch), ", in which ",
                                         Thousands(*advice.updates_per_epoch), " updates, with ",
                                         Thousands(question.samples.value_or(0)), " samples"));
  }
  line("start it with", advice.gpus == 1
                            ? "ddprun train.py"
                            : "ddprun --nproc_per_node gpu --omp_threads auto train.py");
}

void AppendWrapped(absl::string_view prose, absl::string_view indent, std::string* text,
                   size_t columns = kReportColumns) {
  for (const std::string& line : WrapText(prose, columns - indent.size())) {
    absl::StrAppend(text, indent, line, "\n");
  }
}

using FindingCounts = std::array<size_t, 3>;  // by severity

void AppendFinding(const Finding& finding, const std::string& where, std::string* text) {
  absl::StrAppend(text, "\n");
  AppendWrapped(absl::StrCat(SeverityName(finding.severity), where, ": ", finding.what, " [",
                             finding.id, "]"),
                "", text);
  AppendWrapped(finding.why, "  ", text);
  for (const std::string& command : finding.fix) absl::StrAppend(text, "    ", command, "\n");
}

void AppendCounts(const FindingCounts& counts, std::string* text) {
  absl::StrAppend(text, "\n", CountText(counts[0], "error"), ", ", CountText(counts[1], "warning"),
                  ", ", CountText(counts[2], "note"), "\n");
  absl::StrAppend(text,
                  "When communication hangs or fails: ddprun doctor --help says what to try.\n");
}

}  // namespace

std::string DebuggingHintsText() {
  std::string text =
      "When communication hangs or fails (NCCL timeouts, 'unhandled system error'),\n"
      "try in this order:\n";
  for (const DebuggingHint& hint : kDebuggingHints) {
    absl::StrAppend(&text, "    ", hint.command, "\n");
    AppendWrapped(hint.what_for, "      ", &text, kHelpColumns);
  }
  text.pop_back();  // the help goes on by itself
  return text;
}

std::string EnvText(const MachineFacts& facts, const std::optional<HardwareAdvice>& advice,
                    const AdviceQuestion& question) {
  std::string text =
      absl::StrCat("ddprun ", facts.versions.ddprun, " on ", facts.host.name, ": ",
                   OrUnknown(facts.versions.system), ", Linux ", OrUnknown(facts.versions.kernel),
                   ", glibc ", facts.versions.glibc,
                   facts.container.empty() ? "" : ", in a container of ", facts.container, "\n");
  AppendGpus(facts, &text);
  AppendCpus(facts, &text);
  AppendMemory(facts, &text);
  AppendLimits(facts, &text);
  AppendNetwork(facts, &text);
  AppendSoftware(facts, &text);
  if (advice.has_value()) {
    AppendAdvice(*advice, question, &text);
  } else {
    absl::StrAppend(&text, "\nadvice: none, because there is no GPU that workers would see\n");
  }
  return text;
}

std::string DoctorText(const MachineFacts& facts, const std::vector<Finding>& findings) {
  std::string text = absl::StrCat("ddprun doctor on ", facts.host.name, "\n");
  FindingCounts counts = {};
  for (const Finding& finding : findings) {
    ++counts[static_cast<size_t>(finding.severity)];
    AppendFinding(finding, "", &text);
  }
  AppendCounts(counts, &text);
  return text;
}

std::string NodesDoctorText(const std::vector<MachineFindings>& machines,
                            const std::string& differences) {
  std::vector<std::string> hosts;
  hosts.reserve(machines.size());
  for (const MachineFindings& machine : machines) hosts.push_back(machine.host);
  std::string text = absl::StrCat("ddprun doctor on ", CountText(machines.size(), "node"), ": ",
                                  absl::StrJoin(hosts, ", "), "\n");
  FindingCounts counts = {};
  for (const SharedFinding& shared : ShareFindings(machines)) {
    ++counts[static_cast<size_t>(shared.finding.severity)];
    const bool all = shared.hosts.size() == machines.size();
    AppendFinding(shared.finding,
                  all ? " on all nodes" : absl::StrCat(" on ", absl::StrJoin(shared.hosts, ", ")),
                  &text);
  }
  absl::StrAppend(&text, differences.empty() ? "" : "\n", differences);
  AppendCounts(counts, &text);
  return text;
}

}  // namespace ddprun::launcher
