#include "tools/doctor/machine_reports.h"

#include <map>

#include <nlohmann/json.hpp>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

using MachineJson = nlohmann::ordered_json;

template <typename Value>
MachineJson OrNull(const std::optional<Value>& value) {
  return value.has_value() ? MachineJson(*value) : MachineJson(nullptr);
}

MachineJson OrNull(const std::string& text) {
  return text.empty() ? MachineJson(nullptr) : MachineJson(text);
}

MachineJson ProcessesJson(const std::vector<GpuProcess>& processes) {
  MachineJson list = MachineJson::array();
  for (const GpuProcess& process : processes) {
    list.push_back({{"pid", process.pid},
                    {"name", OrNull(process.name)},
                    {"memory_bytes", OrNull(process.memory)}});
  }
  return list;
}

MachineJson GpusJson(const MachineFacts& facts) {
  MachineJson list = MachineJson::array();
  for (size_t i = 0; i < facts.gpus.size(); ++i) {
    const GpuFacts& gpu = facts.gpus[i];
    MachineJson compute = nullptr;
    if (gpu.compute.has_value()) {
      compute = absl::StrCat(gpu.compute->major, ".", gpu.compute->minor);
    }
    list.push_back({{"index", i},
                    {"why_not", OrNull(gpu.why_not)},
                    {"name", OrNull(gpu.name)},
                    {"uuid", OrNull(gpu.uuid)},
                    {"pci_id", OrNull(gpu.pci_id)},
                    {"memory_bytes", OrNull(gpu.memory)},
                    {"memory_free_bytes", OrNull(gpu.memory_free)},
                    {"compute_capability", std::move(compute)},
                    {"ecc", OrNull(gpu.ecc)},
                    {"ecc_corrected", OrNull(gpu.ecc_corrected)},
                    {"ecc_uncorrected", OrNull(gpu.ecc_uncorrected)},
                    {"remap_pending", OrNull(gpu.remap_pending)},
                    {"remap_failed", OrNull(gpu.remap_failed)},
                    {"persistence", OrNull(gpu.persistence)},
                    {"mig", OrNull(gpu.mig)},
                    {"processes", ProcessesJson(gpu.processes)}});
  }
  return list;
}

MachineJson CpuJson(const CpuFacts& cpu) {
  MachineJson nodes = MachineJson::object();
  for (const auto& [node, cpus] : cpu.numa_nodes) nodes[absl::StrCat(node)] = CpuSetText(cpus);
  return {{"model", OrNull(cpu.model)},        {"online", cpu.online}, {"usable", cpu.usable},
          {"cgroup_quota", OrNull(cpu.quota)}, {"cores", cpu.cores},   {"sockets", cpu.packages},
          {"numa_nodes", std::move(nodes)}};
}

MachineJson LimitJson(const LimitPair& limit) {
  return {{"soft", OrNull(limit.soft)}, {"hard", OrNull(limit.hard)}};
}

MachineJson LimitsJson(const std::optional<MachineLimits>& limits) {
  if (!limits.has_value()) return nullptr;
  return {{"open_files", LimitJson(limits->open_files)},
          {"locked_memory_bytes", LimitJson(limits->locked_memory)},
          {"processes", LimitJson(limits->processes)},
          {"core_bytes", LimitJson(limits->core_size)}};
}

MachineJson NetworkJson(const MachineFacts& facts) {
  MachineJson interfaces = MachineJson::array();
  for (const InterfaceFacts& interface : facts.interfaces) {
    interfaces.push_back({{"name", interface.name},
                          {"up", interface.up},
                          {"loopback", interface.loopback},
                          {"speed_mbit_s", OrNull(interface.speed_mbit)},
                          {"mtu", interface.mtu},
                          {"addresses", interface.addresses}});
  }
  MachineJson ports = MachineJson::array();
  for (const RdmaPort& port : facts.rdma_ports) {
    ports.push_back({{"device", port.device},
                     {"port", port.port},
                     {"state", port.state},
                     {"rate", port.rate},
                     {"link_layer", port.link_layer}});
  }
  return {{"hostname_addresses", facts.host.addresses},
          {"interfaces", std::move(interfaces)},
          {"rdma_ports", std::move(ports)}};
}

MachineJson AdviceJson(const std::optional<HardwareAdvice>& advice) {
  if (!advice.has_value()) return nullptr;
  return {{"gpus", advice->gpus},
          {"memory_bytes", advice->memory},
          {"method", advice->method},
          {"batch_per_gpu", advice->batch},
          {"gradient_accumulation", advice->accumulation},
          {"effective_batch", advice->effective_batch},
          {"mixed_precision", advice->precision},
          {"loader_workers_per_gpu", advice->loader_workers},
          {"omp_threads", advice->omp_threads},
          {"steps_per_epoch", OrNull(advice->steps_per_epoch)},
          {"updates_per_epoch", OrNull(advice->updates_per_epoch)}};
}

MachineJson SharedMemoryJson(const std::optional<SharedMemoryFacts>& memory) {
  if (!memory.has_value()) return nullptr;
  return {{"total_bytes", memory->total}, {"free_bytes", memory->free}};
}

MachineJson ClockJson(const std::optional<ClockFacts>& clock) {
  if (!clock.has_value()) return nullptr;
  return {{"synchronised", clock->synchronised}, {"error_ms", clock->error_ms}};
}

std::string Dump(const MachineJson& json) {
  return json.dump(2, ' ', false, MachineJson::error_handler_t::replace) + "\n";
}

}  // namespace

std::string EnvJson(const MachineFacts& facts, const std::optional<HardwareAdvice>& advice) {
  const PythonFacts& python = facts.python;
  MachineJson json = {
      {"ddprun", facts.versions.ddprun},
      {"host", facts.host.name},
      {"system", OrNull(facts.versions.system)},
      {"kernel", OrNull(facts.versions.kernel)},
      {"glibc", facts.versions.glibc},
      {"container", OrNull(facts.container)},
      {"driver",
       {{"version", OrNull(facts.driver.version)},
        {"cuda", facts.driver.cuda.has_value() ? MachineJson(CudaVersionText(*facts.driver.cuda))
                                               : MachineJson(nullptr)},
        {"gpus_of_kernel", facts.driver.gpus_of_kernel},
        {"why_not", OrNull(facts.driver.why_not)}}},
      {"gpus", GpusJson(facts)},
      {"visible_gpus", VisibleGpus(facts)},
      {"cpu", CpuJson(facts.cpu)},
      {"memory",
       {{"total_bytes", facts.memory.total},
        {"available_bytes", facts.memory.available},
        {"swap_bytes", facts.memory.swap},
        {"cgroup_limit_bytes", OrNull(facts.memory.cgroup_limit)}}},
      {"shared_memory", SharedMemoryJson(facts.shared_memory)},
      {"limits", LimitsJson(facts.limits)},
      {"network", NetworkJson(facts)},
      {"clock", ClockJson(facts.clock)},
      {"python",
       {{"path", OrNull(python.path)},
        {"version", OrNull(python.version)},
        {"torch", OrNull(python.torch)},
        {"torch_cuda", OrNull(python.torch_cuda)},
        {"nccl", OrNull(python.nccl)},
        {"deepspeed", OrNull(python.deepspeed)},
        {"why_not", OrNull(python.why_not)}}},
      {"environment", facts.environment},
      {"advice", AdviceJson(advice)}};
  return Dump(json);
}

std::string DoctorJson(const MachineFacts& facts, const std::vector<Finding>& findings) {
  MachineJson list = MachineJson::array();
  size_t counts[3] = {};
  for (const Finding& finding : findings) {
    ++counts[static_cast<size_t>(finding.severity)];
    list.push_back({{"severity", SeverityName(finding.severity)},
                    {"id", finding.id},
                    {"what", finding.what},
                    {"why", finding.why},
                    {"fix", finding.fix}});
  }
  MachineJson hints = MachineJson::array();
  for (const DebuggingHint& hint : kDebuggingHints) {
    hints.push_back({{"command", hint.command}, {"what_for", hint.what_for}});
  }
  return Dump({{"ddprun", facts.versions.ddprun},
               {"host", facts.host.name},
               {"errors", counts[0]},
               {"warnings", counts[1]},
               {"notes", counts[2]},
               {"findings", std::move(list)},
               {"hints", std::move(hints)}});
}

namespace {

using ReportJson = nlohmann::ordered_json;

constexpr size_t kValueShown = 200;

// A property to compare, and its JSON pointer (RFC 6901) in the report.
struct ReportTrait {
  const char* name;
  const char* pointer;
  bool serious;
};
constexpr ReportTrait kReportTraits[] = {
    {"ddprun", "/ddprun", true},
    {"torch", "/python/torch", true},
    {"torch's CUDA", "/python/torch_cuda", true},
    {"NCCL", "/python/nccl", true},
    {"Python", "/python/version", true},
    {"DeepSpeed", "/python/deepspeed", true},
    {"driver", "/driver/version", false},
    {"driver's CUDA", "/driver/cuda", false},
    {"system", "/system", false},
    {"kernel", "/kernel", false},
    {"glibc", "/glibc", false},
    {"container", "/container", false},
    {"CPU", "/cpu/model", false},
    {"usable CPUs", "/cpu/usable", false},
    {"memory", "/memory/total_bytes", false},
    {"memory limit", "/memory/cgroup_limit_bytes", false},
    {"/dev/shm", "/shared_memory/total_bytes", false},
    {"open files", "/limits/open_files/soft", false},
    {"locked memory", "/limits/locked_memory_bytes/soft", false},
    {"processes", "/limits/processes/soft", false},
    {"clock synchronised", "/clock/synchronised", false},
};

std::string ShownValue(const ReportJson& value, absl::string_view pointer) {
  if (value.is_null()) return "none";
  if (value.is_string()) return Shown(value.get<std::string>(), kValueShown);
  if (value.is_number_unsigned() && absl::StrContains(pointer, "_bytes")) {
    return BytesText(value.get<uint64_t>());
  }
  return Shown(value.dump(-1, ' ', false, ReportJson::error_handler_t::replace), kValueShown);
}

const ReportJson* Member(const ReportJson& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

// "4 x NVIDIA L4, 22.5 GiB", one for each model.
std::string GpusOf(const ReportJson& report) {
  std::map<std::string, int> models;
  const ReportJson* gpus = Member(report, "gpus");
  if (gpus == nullptr || !gpus->is_array()) return "unknown";
  for (const ReportJson& gpu : *gpus) {
    const ReportJson* name = Member(gpu, "name");
    const ReportJson* memory = Member(gpu, "memory_bytes");
    ++models[absl::StrCat(name == nullptr ? "unknown" : ShownValue(*name, "/name"), ", ",
                          memory == nullptr ? "unknown" : ShownValue(*memory, "/memory_bytes"))];
  }
  std::vector<std::string> texts;
  texts.reserve(models.size());
  for (const auto& [model, count] : models) texts.push_back(absl::StrCat(count, " x ", model));
  return texts.empty() ? "none" : absl::StrJoin(texts, "; ");
}

// The speeds of interfaces that are up.
std::string SpeedsOf(const ReportJson& report) {
  const ReportJson* network = Member(report, "network");
  const ReportJson* interfaces = network == nullptr ? nullptr : Member(*network, "interfaces");
  if (interfaces == nullptr || !interfaces->is_array()) return "unknown";
  std::vector<std::string> texts;
  for (const ReportJson& interface : *interfaces) {
    const ReportJson* name = Member(interface, "name");
    const ReportJson* up = Member(interface, "up");
    const ReportJson* speed = Member(interface, "speed_mbit_s");
    if (name == nullptr || up == nullptr || *up != true || speed == nullptr || speed->is_null()) {
      continue;
    }
    texts.push_back(absl::StrCat(ShownValue(*name, ""), " ", ShownValue(*speed, ""), " Mbit/s"));
  }
  return texts.empty() ? "none" : absl::StrJoin(texts, ", ");
}

std::string VariablesOf(const ReportJson& report) {
  const ReportJson* variables = Member(report, "environment");
  if (variables == nullptr || !variables->is_object()) return "unknown";
  std::vector<std::string> texts;
  for (const auto& [name, value] : variables->items()) {
    texts.push_back(absl::StrCat(Shown(name, kValueShown), "=", ShownValue(value, "")));
  }
  return texts.empty() ? "none" : absl::StrJoin(texts, ", ");
}

// A sentence or a command, with control characters replaced.
std::string FindingText(const ReportJson& value) {
  if (!value.is_string()) return "unknown";
  return absl::StrReplaceAll(Printable(value.get<std::string>()), {{"\n", " "}});
}

std::string TextOf(const ReportJson& object, const char* name) {
  const ReportJson* value = Member(object, name);
  return value == nullptr ? "unknown" : FindingText(*value);
}

}  // namespace

absl::StatusOr<MachineSummary> SummarizeReport(absl::string_view report) {
  const ReportJson json = ReportJson::parse(report.begin(), report.end(), nullptr, false);
  if (!json.is_object()) return absl::InvalidArgumentError("a node's report is no JSON object");
  MachineSummary summary{.host = "unknown", .traits = {}};
  if (const ReportJson* host = Member(json, "host")) summary.host = ShownValue(*host, "");
  summary.traits.push_back({.name = "GPUs", .value = GpusOf(json), .serious = true});
  for (const ReportTrait& trait : kReportTraits) {
    const ReportJson::json_pointer pointer(trait.pointer);
    summary.traits.push_back(
        {.name = trait.name,
         .value = json.contains(pointer) ? ShownValue(json.at(pointer), trait.pointer) : "unknown",
         .serious = trait.serious});
  }
  summary.traits.push_back({.name = "network", .value = SpeedsOf(json), .serious = false});
  summary.traits.push_back({.name = "variables", .value = VariablesOf(json), .serious = false});
  return summary;
}

absl::StatusOr<MachineFindings> ReadFindings(absl::string_view report) {
  const ReportJson json = ReportJson::parse(report.begin(), report.end(), nullptr, false);
  if (!json.is_object()) return absl::InvalidArgumentError("a node's report is no JSON object");
  MachineFindings machine{.host = TextOf(json, "host"), .findings = {}};
  const ReportJson* list = Member(json, "findings");
  if (list == nullptr || !list->is_array()) return machine;
  for (const ReportJson& each : *list) {
    Finding finding{.severity = Severity::kError,
                    .id = TextOf(each, "id"),
                    .what = TextOf(each, "what"),
                    .why = TextOf(each, "why"),
                    .fix = {}};
    for (const Severity severity : {Severity::kWarning, Severity::kNote}) {
      if (TextOf(each, "severity") == SeverityName(severity)) finding.severity = severity;
    }
    const ReportJson* fix = Member(each, "fix");
    if (fix != nullptr && fix->is_array()) {
      for (const ReportJson& command : *fix) finding.fix.push_back(FindingText(command));
    }
    machine.findings.push_back(std::move(finding));
  }
  return machine;
}

std::string ComparisonJson(const std::vector<std::string>& reports,
                           const std::vector<MachineSummary>& machines) {
  ReportJson nodes = ReportJson::array();
  for (const std::string& report : reports) {
    ReportJson node = ReportJson::parse(report, nullptr, false);
    if (!node.is_discarded()) nodes.push_back(std::move(node));
  }
  ReportJson differences = ReportJson::array();
  for (const MachineDifference& difference : CompareMachines(machines)) {
    ReportJson values = ReportJson::array();
    for (const auto& side : difference.sides) {
      values.push_back({{"value", side.value}, {"hosts", side.hosts}});
    }
    differences.push_back({{"name", difference.name},
                           {"serious", difference.serious},
                           {"values", std::move(values)}});
  }
  const ReportJson json = {{"nodes", std::move(nodes)}, {"differences", std::move(differences)}};
  return json.dump(2, ' ', false, ReportJson::error_handler_t::replace) + "\n";
}

}  // namespace ddprun::launcher
