#include "tools/doctor/core/machine_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/unit/tools/doctor/core/machine_testing.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HealthyMachine;
using ::testing::IsEmpty;
using testing::kGiB;
using testing::kMiB;

std::vector<std::string> Ids(const MachineFacts& facts) {
  std::vector<std::string> ids;
  for (const Finding& finding : FindTroubles(facts)) ids.push_back(finding.id);
  return ids;
}

// The finding of that name; an empty one when there is none.
Finding The(const std::string& id, const MachineFacts& facts) {
  for (const Finding& finding : FindTroubles(facts)) {
    if (finding.id == id) return finding;
  }
  return {};
}

std::string Mend(const std::string& id, const MachineFacts& facts) {
  return absl::StrJoin(The(id, facts).fix, "\n");
}

TEST(Findings, NoneOnAHealthyMachine) {
  EXPECT_THAT(Ids(HealthyMachine()), IsEmpty());
  EXPECT_THAT(Ids(HealthyMachine(4)), IsEmpty());
}

TEST(Findings, ErrorsComeFirst) {
  MachineFacts facts = HealthyMachine(2);
  facts.clock->synchronised = false;
  facts.gpus[0].persistence = false;
  facts.shared_memory->total = 64 * kMiB;
  EXPECT_THAT(Ids(facts),
              ElementsAre("shared_memory_small", "clock_unsynchronised", "persistence_off"));
}

TEST(SharedMemory, SmallFullOrMissing) {
  MachineFacts facts = HealthyMachine();
  facts.shared_memory = SharedMemoryFacts{.total = kGiB - 1, .free = kGiB - 1};
  EXPECT_EQ(The("shared_memory_small", facts).severity, Severity::kWarning);
  EXPECT_EQ(Mend("shared_memory_small", facts),
            "sudo mount -t tmpfs -o remount,size=32g tmpfs /dev/shm");
  facts.shared_memory->total = 64 * kMiB;
  EXPECT_EQ(The("shared_memory_small", facts).severity, Severity::kError);
  facts.container = "docker";
  facts.memory.cgroup_limit = 8 * kGiB;
  EXPECT_EQ(Mend("shared_memory_small", facts), "docker run --shm-size=4g …");
  facts.container = "kubernetes";
  EXPECT_THAT(Mend("shared_memory_small", facts), HasSubstr("medium: Memory, sizeLimit: 4Gi"));
  facts = HealthyMachine();
  facts.shared_memory->free = facts.shared_memory->total / 10 - 1;
  EXPECT_THAT(Ids(facts), ElementsAre("shared_memory_full"));
  facts.shared_memory.reset();
  EXPECT_THAT(Ids(facts), ElementsAre("shared_memory_missing"));
  EXPECT_THAT(Mend("shared_memory_missing", facts), HasSubstr("mount -t tmpfs -o size=32g"));
}

TEST(Limits, OpenFiles) {
  MachineFacts facts = HealthyMachine();
  facts.limits->open_files = {1024, 1'048'576};
  EXPECT_THAT(Mend("open_files_low", facts), HasSubstr("ulimit -n $(ulimit -Hn)"));
  facts.limits->open_files = {1024, 2048};
  EXPECT_THAT(Mend("open_files_low", facts), HasSubstr("'* - nofile 1048576'"));
  facts.container = "podman";
  EXPECT_THAT(Mend("open_files_low", facts), HasSubstr("podman run --ulimit nofile=1048576"));
  facts.limits->open_files = {4096, 4096};
  EXPECT_THAT(Ids(facts), IsEmpty());
  facts.limits->open_files = {};
  EXPECT_THAT(Ids(facts), IsEmpty());
}

TEST(Limits, LockedMemoryMattersWithRdmaOnly) {
  MachineFacts facts = HealthyMachine();
  facts.limits->locked_memory = {8 * kMiB, 8 * kMiB};
  EXPECT_THAT(Ids(facts), IsEmpty());
  facts.rdma_ports = {{.device = "mlx5_0", .state = "DOWN"}};
  EXPECT_THAT(Ids(facts), IsEmpty());
  facts.rdma_ports[0].state = "ACTIVE";
  EXPECT_THAT(Mend("locked_memory_low", facts), HasSubstr("memlock unlimited"));
}

TEST(Limits, ProcessesAndCoreFiles) {
  MachineFacts facts = HealthyMachine();
  facts.limits->processes = {1000, 1000};
  facts.limits->core_size = {0, std::nullopt};
  EXPECT_THAT(Ids(facts), ElementsAre("processes_low", "core_files_off"));
  facts.limits.reset();
  EXPECT_THAT(Ids(facts), IsEmpty());
}

TEST(Limits, ProcessesThatCannotBeHeld) {
  MachineFacts facts = HealthyMachine();
  facts.why_no_pidfds = "pidfd_open of this process: Operation not permitted (errno 1, EPERM)";
  EXPECT_EQ(The("pidfd_refused", facts).what, facts.why_no_pidfds);
  EXPECT_THAT(Mend("pidfd_refused", facts), HasSubstr("uname -r"));
  facts.container = "docker";
  EXPECT_THAT(Mend("pidfd_refused", facts),
              HasSubstr("docker run --security-opt seccomp=unconfined"));
  facts.container = "kubernetes";
  EXPECT_THAT(Mend("pidfd_refused", facts), HasSubstr("seccompProfile"));
}

TEST(Hostname, LoopbackIsATrap) {
  MachineFacts facts = HealthyMachine();
  facts.host.addresses = {"127.0.1.1"};
  EXPECT_EQ(Mend("hostname_is_loopback", facts),
            "export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0  # or for good:\n"
            "sudo sed -i 's/^127\\.0\\.1\\.1[[:space:]]/10.0.0.1 /' /etc/hosts");
  facts.host.addresses = {"127.0.0.1"};  // the line of localhost stays
  EXPECT_THAT(Mend("hostname_is_loopback", facts),
              HasSubstr("sudo sed -i -E '/^(127\\.|::1)/s/[[:space:]]host0([[:space:]]|$)/\\1/' "
                        "/etc/hosts\necho '10.0.0.1 host0' | sudo tee -a /etc/hosts"));
  facts.container = "docker";
  EXPECT_EQ(Mend("hostname_is_loopback", facts),
            "export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0");
  facts.container = "";
  facts.host.addresses = {"10.0.0.1", "127.0.1.1"};
  EXPECT_THAT(Ids(facts), IsEmpty());
  facts.host = {.name = "host0", .why_not = "can't resolve host 'host0'"};
  EXPECT_THAT(Mend("hostname_unresolved", facts),
              HasSubstr("echo '10.0.0.1 host0' | sudo tee -a /etc/hosts"));
  // Without its interface no other machine could reach this one anyway.
  facts.interfaces.erase(facts.interfaces.begin());
  EXPECT_THAT(Ids(facts), IsEmpty());
}

TEST(Hostname, AddressesOfALinkAreNoAdvice) {
  MachineFacts facts = HealthyMachine();
  facts.host.addresses = {"127.0.1.1"};
  facts.interfaces[0].addresses = {"fe80::1", "2001:db8::1"};
  EXPECT_THAT(Mend("hostname_is_loopback", facts), HasSubstr("/2001:db8::1 /"));
  facts.interfaces[0].addresses = {"fe80::1"};
  EXPECT_THAT(Ids(facts), IsEmpty());
}

TEST(Clock, Unsynchronised) {
  MachineFacts facts = HealthyMachine();
  facts.clock->synchronised = false;
  EXPECT_THAT(Mend("clock_unsynchronised", facts), HasSubstr("timedatectl set-ntp true"));
  facts.clock.reset();  // unknown
  EXPECT_THAT(Ids(facts), IsEmpty());
}

TEST(Cgroup, LimitsBelowTheMachine) {
  MachineFacts facts = HealthyMachine();
  facts.memory.cgroup_limit = 16 * kGiB;
  facts.cpu.usable = 4;
  facts.cpu.quota = 4;
  EXPECT_THAT(Ids(facts), ElementsAre("memory_limited", "cpus_limited"));
  EXPECT_THAT(The("memory_limited", facts).what, HasSubstr("16.0 GiB of this machine's 64.0 GiB"));
  EXPECT_THAT(The("cpus_limited", facts).what, HasSubstr("4 of 16 CPUs (quota of the cgroup)"));
  facts.memory.cgroup_limit = 64 * kGiB;
  facts.cpu.quota.reset();
  EXPECT_THAT(The("cpus_limited", facts).what, HasSubstr("(affinity)"));
  facts.cpu.usable = 16;
  EXPECT_THAT(Ids(facts), IsEmpty());
}

TEST(Variables, OfNcclAndGloo) {
  MachineFacts facts = HealthyMachine(2);
  facts.environment["NCCL_IB_DISABLE"] = "1";
  facts.environment["NCCL_SOCKET_IFNAME"] = "^docker,lo";
  EXPECT_THAT(Ids(facts), IsEmpty());
  facts.environment["NCCL_P2P_DISABLE"] = "1";
  facts.rdma_ports = {{.device = "mlx5_0", .state = "ACTIVE"}};
  EXPECT_THAT(Ids(facts), ElementsAre("nccl_ib_disabled", "nccl_p2p_disabled"));
  facts = HealthyMachine();
  facts.environment["GLOO_SOCKET_IFNAME"] = "ens5";
  EXPECT_THAT(The("interface_missing", facts).what, HasSubstr("which has eth0, lo"));
  EXPECT_EQ(Mend("interface_missing", facts), "unset GLOO_SOCKET_IFNAME");
  facts.environment["GLOO_SOCKET_IFNAME"] = "ens5\x1b[2J";
  EXPECT_THAT(The("interface_missing", facts).what, HasSubstr("GLOO_SOCKET_IFNAME=ens5\\x1b[2J "));
  facts.environment["GLOO_SOCKET_IFNAME"] = "eth0";
  facts.environment["NCCL_SOCKET_IFNAME"] = "=ib0,eth0";
  EXPECT_THAT(Ids(facts), IsEmpty());
  facts.environment["NCCL_SOCKET_IFNAME"] = "eth";  // the beginning of a name
  EXPECT_THAT(Ids(facts), IsEmpty());
}

// Gloo takes whole names, and all must be there; NCCL takes whole ones only behind '='.
TEST(InterfaceVariables, GlooIsStricterThanNccl) {
  for (const auto& [variable, value, wrong] :
       std::vector<std::tuple<const char*, const char*, const char*>>{
           {"GLOO_SOCKET_IFNAME", "eth0,lo", ""},
           {"GLOO_SOCKET_IFNAME", "eth", "names no interface"},
           {"GLOO_SOCKET_IFNAME", "eth0,ens5", "names ens5, no interface"},
           {"GLOO_SOCKET_IFNAME", "^lo", "names no interface"},
           {"GLOO_SOCKET_IFNAME", "=eth0", "names no interface"},
           {"NCCL_SOCKET_IFNAME", "eth,ens", ""},
           {"NCCL_SOCKET_IFNAME", "^docker0", ""},
           {"NCCL_SOCKET_IFNAME", "eth0:5000", ""},
           {"NCCL_SOCKET_IFNAME", "=ib0,eth0", ""},
           {"NCCL_SOCKET_IFNAME", "=eth", "names no interface"},
           {"NCCL_SOCKET_IFNAME", "ib,ens", "names no interface"}}) {
    MachineFacts facts = HealthyMachine();
    facts.environment[variable] = value;
    if (*wrong == '\0') {
      EXPECT_THAT(Ids(facts), IsEmpty()) << variable << value;
    } else {
      EXPECT_THAT(The("interface_missing", facts).what, HasSubstr(wrong)) << variable << value;
    }
  }
}

TEST(Threads, TooManyOrUnset) {
  MachineFacts facts = HealthyMachine(4);
  facts.environment["OMP_NUM_THREADS"] = "5";
  EXPECT_EQ(Mend("omp_threads_many", facts), "export OMP_NUM_THREADS=4");
  facts.environment["OMP_NUM_THREADS"] = "4";
  EXPECT_THAT(Ids(facts), IsEmpty());
  facts.environment.erase("OMP_NUM_THREADS");
  EXPECT_THAT(Mend("omp_threads_unset", facts), HasSubstr("--omp_threads auto"));
  EXPECT_THAT(Ids(HealthyMachine(1)), IsEmpty());
}

TEST(Imports, ThatStandOut) {
  MachineFacts facts = HealthyMachine();
  facts.imports = {{.script = "train.py",
                    .modules = {{.name = "spoilt", .why = "starts a thread"},
                                {.name = "torch", .milliseconds = 9100},
                                {.name = "numpy", .milliseconds = 600}}}};
  EXPECT_THAT(Ids(facts), ElementsAre("import_not_ahead", "import_slow"));
  EXPECT_EQ(The("import_not_ahead", facts).what,
            "'spoilt', which train.py imports, can't be imported ahead: it starts a thread");
  EXPECT_EQ(The("import_slow", facts).what, "importing 'torch' took 9.1 s for train.py");
}

TEST(Imports, OfManyScriptsAreOneLine) {
  MachineFacts facts = HealthyMachine();
  const ImportFacts::Module refused = {.name = "spoilt", .why = "starts a thread"};
  facts.imports = {
      {.script = "a.py", .modules = {refused, {.name = "torch", .milliseconds = 5100}}},
      {.script = "b.py", .modules = {refused, {.name = "torch", .milliseconds = 9100}}},
      {.script = "b.py", .modules = {{.name = "torch", .milliseconds = 7100}}},
      {.script = "c.py", .modules = {{.name = "torch", .milliseconds = 4900}}}};
  EXPECT_THAT(Ids(facts), ElementsAre("import_not_ahead", "import_slow"));
  EXPECT_EQ(The("import_not_ahead", facts).what,
            "'spoilt', which a.py and 1 other script import, can't be imported ahead: it starts a "
            "thread");
  EXPECT_EQ(The("import_slow", facts).what, "importing 'torch' took 9.1 s for b.py and 2 others");
}

TEST(Severities, HaveNames) {
  EXPECT_STREQ(SeverityName(Severity::kError), "error");
  EXPECT_STREQ(SeverityName(Severity::kWarning), "warning");
  EXPECT_STREQ(SeverityName(Severity::kNote), "note");
}

}  // namespace
}  // namespace ddprun::launcher
