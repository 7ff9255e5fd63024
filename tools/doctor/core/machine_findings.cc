#include "tools/doctor/core/machine_findings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;
constexpr uint64_t kGibibyte = uint64_t{1} << 30;
// Data loaders hold a descriptor for each tensor that waits in shared memory.
constexpr uint64_t kOpenFilesEnough = 4096;
constexpr uint64_t kProcessesEnough = 4096;

using Findings = std::vector<Finding>;

// Half of the memory in whole GiB, at least 1: what Linux gives /dev/shm by itself.
uint64_t SharedMemoryGibibytes(const MachineFacts& facts) {
  return std::max<uint64_t>(1, UsableMemory(facts) / 2 / kGibibyte);
}

std::vector<std::string> MendSharedMemory(const MachineFacts& facts) {
  const uint64_t size = SharedMemoryGibibytes(facts);
  if (facts.container == "kubernetes") {
    return {
        absl::StrCat("volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: ", size, "Gi}}]"),
        "volumeMounts: [{name: shm, mountPath: /dev/shm}]"};
  }
  if (!facts.container.empty()) {
    return {absl::StrCat(facts.container, " run --shm-size=", size, "g …")};
  }
  const char* verb = facts.shared_memory.has_value() ? "remount," : "";
  return {absl::StrCat("sudo mount -t tmpfs -o ", verb, "size=", size, "g tmpfs /dev/shm")};
}

void CheckSharedMemory(const MachineFacts& facts, Findings* findings) {
  const char* const why =
      "data loaders hand their batches over in it: when it is full they die of SIGBUS ('bus "
      "error'); so do NCCL and workers that share it";
  if (!facts.shared_memory.has_value()) {
    findings->push_back({Severity::kError, "shared_memory_missing", "there is no /dev/shm", why,
                         MendSharedMemory(facts)});
    return;
  }
  const SharedMemoryFacts& memory = *facts.shared_memory;
  if (memory.total < kGibibyte) {
    findings->push_back({memory.total <= 64 * kMebibyte ? Severity::kError : Severity::kWarning,
                         "shared_memory_small",
                         absl::StrCat("/dev/shm has ", BytesText(memory.total)), why,
                         MendSharedMemory(facts)});
  } else if (memory.free < memory.total / 10) {
    findings->push_back({Severity::kWarning,
                         "shared_memory_full",
                         absl::StrCat("/dev/shm has ", BytesText(memory.free), " free of ",
                                      BytesText(memory.total)),
                         why,
                         {"ls -lhtu /dev/shm  # what ended jobs left there can go"}});
  }
}

std::string LimitOrUnlimited(const std::optional<uint64_t>& limit) {
  return limit.has_value() ? absl::StrCat(*limit) : "unlimited";
}

// How a limit is raised for good; `name` as in limits.conf(5).
std::vector<std::string> MendHardLimit(const MachineFacts& facts, const char* name,
                                       const char* value) {
  if (facts.container == "kubernetes") {
    return {"# set it in the container runtime of the node: LimitNOFILE of containerd.service"};
  }
  if (!facts.container.empty()) {
    const char* everything = absl::string_view(value) == "unlimited" ? "-1" : value;
    return {absl::StrCat(facts.container, " run --ulimit ", name, "=", everything, " …")};
  }
  return {absl::StrCat("echo '* - ", name, " ", value,
                       "' | sudo tee -a /etc/security/limits.d/ddprun.conf  # then log in again")};
}

void CheckOpenFiles(const MachineFacts& facts, Findings* findings) {
  const LimitPair& limit = facts.limits->open_files;
  if (limit.soft.value_or(UINT64_MAX) >= kOpenFilesEnough) return;
  Finding finding{.severity = Severity::kWarning,
                  .id = "open_files_low",
                  .what = absl::StrCat("a process may have ", LimitOrUnlimited(limit.soft),
                                       " open files (at most ", LimitOrUnlimited(limit.hard), ")"),
                  .why = "data loaders need one for each tensor that waits: 'Too many open files'"};
  if (limit.hard.value_or(UINT64_MAX) >= kOpenFilesEnough) {
    finding.fix = {"ulimit -n $(ulimit -Hn)  # in the shell that starts ddprun"};
  } else {
    finding.fix = MendHardLimit(facts, "nofile", "1048576");
  }
  findings->push_back(std::move(finding));
}

bool HasRdma(const MachineFacts& facts) {
  return std::any_of(facts.rdma_ports.begin(), facts.rdma_ports.end(),
                     [](const RdmaPort& port) { return port.state == "ACTIVE"; });
}

void CheckOtherLimits(const MachineFacts& facts, Findings* findings) {
  const MachineLimits& limits = *facts.limits;
  if (limits.locked_memory.soft.has_value() && HasRdma(facts)) {
    findings->push_back({Severity::kWarning, "locked_memory_low",
                         absl::StrCat("a process may lock ", BytesText(*limits.locked_memory.soft),
                                      " of memory, and this machine has InfiniBand or RoCE"),
                         "NCCL locks the memory that it sends from: 'ibv_reg_mr … failed'",
                         MendHardLimit(facts, "memlock", "unlimited")});
  }
  if (limits.processes.soft.value_or(UINT64_MAX) < kProcessesEnough) {
    findings->push_back(
        {Severity::kWarning, "processes_low",
         absl::StrCat("this user may have ", LimitOrUnlimited(limits.processes.soft),
                      " processes and threads"),
         "each worker has tens of threads: 'Resource temporarily unavailable'",
         MendHardLimit(facts, "nproc", "unlimited")});
  }
  if (limits.core_size.soft.value_or(1) == 0) {
    findings->push_back({Severity::kNote,
                         "core_files_off",
                         "workers that crash leave no core file",
                         "where they crashed can't be seen afterwards",
                         {"ulimit -c unlimited  # in the shell that starts ddprun"}});
  }
}

void CheckPidfds(const MachineFacts& facts, Findings* findings) {
  if (facts.why_no_pidfds.empty()) return;
  std::vector<std::string> fix = {"uname -r  # 5.4 or newer: a seccomp filter is at work"};
  if (facts.container == "kubernetes") {
    fix.emplace_back("securityContext: {seccompProfile: {type: Unconfined}}");
  } else if (!facts.container.empty()) {
    fix.push_back(absl::StrCat(facts.container, " run --security-opt seccomp=unconfined …"));
  }
  findings->push_back(
      {Severity::kWarning, "pidfd_refused", facts.why_no_pidfds,
       "jobs run all the same; ddprun daemon and ddprun chaos, which hold processes "
       "that aren't their children, can't",
       std::move(fix)});
}

void CheckClock(const MachineFacts& facts, Findings* findings) {
  if (!facts.clock.has_value() || facts.clock->synchronised) return;
  const bool inside = !facts.container.empty();
  findings->push_back({Severity::kWarning,
                       "clock_unsynchronised",
                       "nothing keeps the clock right (adjtimex: unsynchronised)",
                       "times in the logs of several nodes can't be compared, and certificates may "
                       "count as expired; ddprun itself compares no clocks of machines",
                       {inside ? "# on the machine, outside of the container: sudo timedatectl "
                                 "set-ntp true"
                               : "sudo timedatectl set-ntp true  # or install chrony"}});
}

// The first interface that other machines can reach, with an IPv4 address where there is one.
std::optional<std::pair<std::string, std::string>> OutwardAddress(const MachineFacts& facts) {
  std::optional<std::pair<std::string, std::string>> found;
  for (const InterfaceFacts& interface : facts.interfaces) {
    if (interface.loopback || !interface.up) continue;
    for (const std::string& address : interface.addresses) {
      const bool v6 = absl::StrContains(address, ':');
      if (absl::StartsWith(address, "fe80:")) continue;  // means nothing without its interface
      if (!v6) return std::make_pair(interface.name, address);
      if (!found.has_value()) found = std::make_pair(interface.name, address);
    }
  }
  return found;
}

// Whether the address is valid only within the machine.
bool IsOwnAddress(const std::string& address) {
  return absl::StartsWith(address, "127.") || address == "::1";
}

// The line of /etc/hosts. 127.0.1.1 is there for the name alone; 127.0.0.1 is localhost's too.
std::vector<std::string> MendHosts(const std::string& loopback, const std::string& name,
                                   const std::string& address) {
  if (loopback == "127.0.1.1") {
    return {absl::StrCat("sudo sed -i 's/^127\\.0\\.1\\.1[[:space:]]/", address, " /' /etc/hosts")};
  }
  return {absl::StrCat("sudo sed -i -E '/^(127\\.|::1)/s/[[:space:]]", name,
                       "([[:space:]]|$)/\\1/' /etc/hosts"),
          absl::StrCat("echo '", address, " ", name, "' | sudo tee -a /etc/hosts")};
}

void CheckHostname(const MachineFacts& facts, Findings* findings) {
  const auto outward = OutwardAddress(facts);
  if (!outward.has_value()) return;  // nobody outside could come
  const std::string& name = facts.host.name;
  const auto& [interface, address] = *outward;
  std::vector<std::string> fix = {
      absl::StrCat("export GLOO_SOCKET_IFNAME=", interface, " NCCL_SOCKET_IFNAME=", interface)};
  if (facts.host.addresses.empty()) {
    fix.push_back(absl::StrCat("echo '", address, " ", name, "' | sudo tee -a /etc/hosts"));
    findings->push_back({Severity::kWarning, "hostname_unresolved",
                         absl::StrCat("the name of this machine, ", name,
                                      ", stands for no address: ", facts.host.why_not),
                         "Gloo asks for it to choose its interface", std::move(fix)});
    return;
  }
  const std::string& first = facts.host.addresses.front();  // which counts
  if (!IsOwnAddress(first)) return;
  // A container's file is mounted, and made anew with each container.
  if (facts.container.empty()) {
    fix.back() += "  # or for good:";
    for (std::string& line : MendHosts(first, name, address)) fix.push_back(std::move(line));
  }
  findings->push_back(
      {Severity::kWarning, "hostname_is_loopback",
       absl::StrCat("the name of this machine, ", name, ", stands for ", first),
       "Gloo gives other nodes that address, and they wait for themselves (Debian writes 127.0.1.1 "
       "into /etc/hosts); a machine that trains alone doesn't mind",
       std::move(fix)});
}

void CheckCgroup(const MachineFacts& facts, Findings* findings) {
  const std::optional<uint64_t> limit = facts.memory.cgroup_limit;
  if (limit.has_value() && *limit < facts.memory.total) {
    findings->push_back({Severity::kNote,
                         "memory_limited",
                         absl::StrCat("the cgroup allows ", BytesText(*limit),
                                      " of this machine's ", BytesText(facts.memory.total)),
                         "workers and data loaders that need more are killed by the kernel, though "
                         "the machine looks free",
                         {"# ask for more: --mem of sbatch, resources.limits.memory of a pod, "
                          "--memory of docker"}});
  }
  if (facts.cpu.usable < facts.cpu.online) {
    findings->push_back(
        {Severity::kNote,
         "cpus_limited",
         absl::StrCat("this job may use ", facts.cpu.usable, " of ", facts.cpu.online, " CPUs (",
                      facts.cpu.quota == facts.cpu.usable ? "quota of the cgroup" : "affinity",
                      ")"),
         "size data loaders and threads for these; os.cpu_count() counts all",
         {"# ask for more: --cpus-per-task of sbatch, resources.limits.cpu of a "
          "pod, --cpus of docker"}});
  }
}

// The names in a variable that no interface has. NCCL, "eth0,ib": beginnings of names, "=eth0"
// whole ones, "^eth0" all others, with ports behind ':'; one match is enough. Gloo, "eth0,eth1":
// whole names, and all must be there.
std::vector<std::string> MissingInterfaces(const MachineFacts& facts, absl::string_view list,
                                           bool is_nccl) {
  if (is_nccl && absl::StartsWith(list, "^")) return {};
  const bool whole = !is_nccl || absl::ConsumePrefix(&list, "=");
  std::vector<std::string> missing;
  for (absl::string_view name : absl::StrSplit(list, ',')) {
    if (is_nccl) name = name.substr(0, name.find(':'));
    const bool there = std::any_of(
        facts.interfaces.begin(), facts.interfaces.end(), [&](const InterfaceFacts& interface) {
          return whole ? interface.name == name : absl::StartsWith(interface.name, name);
        });
    if (there && is_nccl) return {};
    if (!there) missing.emplace_back(name);
  }
  return missing;
}

void CheckInterfaceVariable(const MachineFacts& facts, const std::string& variable,
                            Findings* findings) {
  const std::string* value = EnvironmentValue(facts, variable);
  if (value == nullptr || value->empty()) return;
  const std::vector<std::string> missing =
      MissingInterfaces(facts, *value, absl::StartsWith(variable, "NCCL"));
  if (missing.empty()) return;
  std::vector<std::string> present;
  for (const InterfaceFacts& interface : facts.interfaces) present.push_back(interface.name);
  const bool all = missing.size() == std::vector<std::string>(absl::StrSplit(*value, ',')).size();
  const std::string names = all ? "no interface of this machine"
                                : absl::StrCat(Shown(absl::StrJoin(missing, ", "), 200),
                                               ", no interface of this machine");
  findings->push_back(
      {Severity::kError,
       "interface_missing",
       absl::StrCat(variable, "=", Shown(*value, 200), " names ", names, ", which has ",
                    present.empty() ? "none" : absl::StrJoin(present, ", ")),
       "workers end with 'no socket interface found' or 'unable to find address'",
       {absl::StrCat("unset ", variable)}});
}

void CheckNcclVariables(const MachineFacts& facts, Findings* findings) {
  const std::string* without = EnvironmentValue(facts, "NCCL_IB_DISABLE");
  if (without != nullptr && *without == "1" && HasRdma(facts)) {
    findings->push_back(
        {Severity::kWarning,
         "nccl_ib_disabled",
         "NCCL_IB_DISABLE=1, and this machine has an active InfiniBand or RoCE port",
         "NCCL takes TCP, which is many times slower",
         {"unset NCCL_IB_DISABLE"}});
  }
  const std::string* p2p = EnvironmentValue(facts, "NCCL_P2P_DISABLE");
  if (p2p != nullptr && *p2p == "1" && VisibleGpus(facts).size() > 1) {
    findings->push_back({Severity::kWarning,
                         "nccl_p2p_disabled",
                         "NCCL_P2P_DISABLE=1, and there are several GPUs",
                         "GPUs copy through the machine's memory instead of directly",
                         {"unset NCCL_P2P_DISABLE"}});
  }
  for (const char* variable : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    CheckInterfaceVariable(facts, variable, findings);
  }
}

void CheckThreads(const MachineFacts& facts, Findings* findings) {
  const auto workers = static_cast<uint32_t>(std::max<size_t>(1, VisibleGpus(facts).size()));
  const std::string* value = EnvironmentValue(facts, "OMP_NUM_THREADS");
  uint32_t threads = 0;
  const uint32_t share = std::max(1U, facts.cpu.usable / workers);
  if (value != nullptr && absl::SimpleAtoi(*value, &threads)) {
    if (threads <= share) return;
    findings->push_back(
        {Severity::kWarning,
         "omp_threads_many",
         absl::StrCat("OMP_NUM_THREADS=", threads, " for ", CountText(workers, "worker"), " on ",
                      facts.cpu.usable, " CPUs"),
         "threads that wait for a CPU make every step slower",
         {absl::StrCat("export OMP_NUM_THREADS=", share)}});
  } else if (value == nullptr && workers > 1 && share > 1) {
    findings->push_back({Severity::kNote,
                         "omp_threads_unset",
                         absl::StrCat("OMP_NUM_THREADS is not set: ", workers,
                                      " workers get one thread each, as from torchrun, where ",
                                      share, " have room"),
                         "work on the CPU, as in the optimizer or transforms, is slower than it "
                         "needs to be",
                         {"ddprun --nproc_per_node gpu --omp_threads auto train.py"}});
  }
}

// Worth a line: from a local disk all of torch takes about 2 s.
constexpr uint32_t kSlowImportMilliseconds = 5000;

// The scripts that have met the same; the worst of them is named.
struct Met {
  std::string script;
  uint32_t milliseconds = 0;
  size_t scripts = 0;

  std::string who() const {
    if (scripts == 1) return script;
    return absl::StrCat(script, " and ", scripts - 1, scripts == 2 ? " other script" : " others");
  }
};

void Count(const std::string& script, uint32_t milliseconds, Met* met) {
  ++met->scripts;
  if (met->scripts > 1 && milliseconds <= met->milliseconds) return;
  met->script = script;
  met->milliseconds = milliseconds;
}

// A machine may have records of hundreds of scripts. Most import the same modules, so each module
// is one finding.
void CheckImports(const MachineFacts& facts, Findings* findings) {
  std::map<std::pair<std::string, std::string>, Met> refused;  // by name and reason
  std::map<std::string, Met> slow;
  for (const ImportFacts& script : facts.imports) {
    for (const auto& [name, why, milliseconds] : script.modules) {
      if (!why.empty()) Count(script.script, 0, &refused[{name, why}]);
      if (milliseconds >= kSlowImportMilliseconds) Count(script.script, milliseconds, &slow[name]);
    }
  }
  for (const auto& [module, met] : refused) {
    findings->push_back(
        {Severity::kNote,
         "import_not_ahead",
         absl::StrCat("'", module.first, "', which ", met.who(),
                      met.scripts == 1 ? " imports" : " import", ", can't be imported ahead: it ",
                      module.second),
         "with --warm on each worker imports it, and what imports it, by itself at each start",
         {}});
  }
  for (const auto& [name, met] : slow) {
    findings->push_back({Severity::kNote,
                         "import_slow",
                         absl::StrFormat("importing '%s' took %.1f s for %s", name,
                                         met.milliseconds / 1000.0, met.who()),
                         "each cold start waits for it; from a local disk PyTorch takes 2 s",
                         {"# install it on a local disk, or give --warm on"}});
  }
}

}  // namespace

const char* SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      break;
  }
  return "note";
}

std::vector<Finding> FindTroubles(const MachineFacts& facts) {
  Findings findings;
  FindGpuTroubles(facts, &findings);
  CheckSharedMemory(facts, &findings);
  if (facts.limits.has_value()) {
    CheckOpenFiles(facts, &findings);
    CheckOtherLimits(facts, &findings);
  }
  CheckHostname(facts, &findings);
  CheckNcclVariables(facts, &findings);
  CheckThreads(facts, &findings);
  CheckPidfds(facts, &findings);
  CheckClock(facts, &findings);
  CheckCgroup(facts, &findings);
  CheckImports(facts, &findings);
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
  return findings;
}

std::vector<SharedFinding> ShareFindings(const std::vector<MachineFindings>& machines) {
  std::vector<SharedFinding> all;
  for (const MachineFindings& machine : machines) {
    for (const Finding& finding : machine.findings) {
      const auto same = std::find_if(all.begin(), all.end(), [&](const SharedFinding& other) {
        return other.finding == finding;
      });
      if (same == all.end()) {
        all.push_back({.finding = finding, .hosts = {machine.host}});
      } else {
        same->hosts.push_back(machine.host);
      }
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const SharedFinding& a, const SharedFinding& b) {
    return a.finding.severity < b.finding.severity;
  });
  return all;
}

}  // namespace ddprun::launcher
