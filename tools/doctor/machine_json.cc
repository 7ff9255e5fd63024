#include "tools/doctor/machine_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

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

}  // namespace ddprun::launcher
