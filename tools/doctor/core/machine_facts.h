#ifndef DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_FACTS_H_
#define DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/core/cpu_binding.h"

namespace ddprun::launcher {

// The facts of a machine that `ddprun env` shows and `ddprun doctor` judges. Plain data; sizes are
// bytes. An empty text or optional = not known.

struct GpuProcess {
  uint32_t pid = 0;  // as the driver counts: the machine's, also in a container with its own pids
  std::optional<uint64_t> memory;
  std::string name;  // comm of proc(5); "" = not in our /proc
};

struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

struct GpuFacts {
  std::string why_not;  // why the GPU doesn't answer, so that the rest is unknown; "" = it answers
  std::string name;
  std::string uuid;    // "GPU-8932f937-…"
  std::string pci_id;  // "00000000:3B:00.0", as the driver writes it
  std::optional<uint64_t> memory;
  std::optional<uint64_t> memory_free;
  std::optional<ComputeCapability> compute;
  std::optional<bool> ecc;                  // error correction is on
  std::optional<uint64_t> ecc_corrected;    // errors since the driver was loaded
  std::optional<uint64_t> ecc_uncorrected;  // errors that destroyed data in memory
  std::optional<bool> remap_pending;        // a bad row of memory waits for a reset to be replaced
  std::optional<bool> remap_failed;         // there was no spare row for it
  std::optional<bool> persistence;          // the driver stays loaded without users
  std::optional<bool> mig;                  // divided into instances
  std::vector<GpuProcess> processes;        // that compute on the GPU
};

struct DriverFacts {
  std::string version;          // "550.54.15"
  std::optional<int> cuda;      // newest CUDA that the driver supports: 12040 is 12.4
  std::string why_not;          // why the GPUs couldn't be queried; "" = they were
  uint32_t gpus_of_kernel = 0;  // in /proc/driver/nvidia, which needs no library
};

struct CpuFacts {
  std::string model;
  uint32_t online = 0;
  uint32_t usable = 0;            // by affinity and cgroup
  std::optional<uint32_t> quota;  // the cgroup's, in CPUs
  uint32_t cores = 0;             // physical ones; 0 = hwloc doesn't know
  uint32_t packages = 0;
  std::map<uint32_t, CpuSet> numa_nodes;
  std::string why_no_topology;
};

struct MemoryFacts {
  uint64_t total = 0;
  uint64_t available = 0;
  uint64_t swap = 0;
  std::optional<uint64_t> cgroup_limit;
};

// A file system of shared memory: /dev/shm.
struct SharedMemoryFacts {
  uint64_t total = 0;
  uint64_t free = 0;
};

struct LimitPair {
  std::optional<uint64_t> soft;  // nullopt = unlimited
  std::optional<uint64_t> hard;
};
struct MachineLimits {
  LimitPair open_files;
  LimitPair locked_memory;
  LimitPair processes;
  LimitPair core_size;
};

struct InterfaceFacts {
  std::string name;
  bool loopback = false;
  bool up = false;                     // it can carry packets now
  std::optional<uint32_t> speed_mbit;  // per second; virtual ones have none
  uint32_t mtu = 0;
  std::vector<std::string> addresses;
};

// A port of an InfiniBand or RoCE device.
struct RdmaPort {
  std::string device;  // "mlx5_0"
  uint32_t port = 1;
  std::string state;       // "ACTIVE"
  std::string rate;        // "200 Gb/sec (4X HDR)"
  std::string link_layer;  // "InfiniBand" or "Ethernet"
};

struct ClockFacts {
  bool synchronised = false;
  double error_ms = 0;  // at most, as the kernel estimates it
};

struct HostnameFacts {
  std::string name;
  std::vector<std::string> addresses;  // to which the name resolves here
  std::string why_not;                 // why the name doesn't resolve
};

// The interpreter that would run a script, and what is installed for it. Versions.
struct PythonFacts {
  std::string path;  // "" = there is none in PATH
  std::string version;
  std::string torch;
  std::string torch_cuda;  // that torch was built for; "" = for none
  std::string nccl;        // of the package that torch brings
  std::string deepspeed;
  std::string why_not;  // why the interpreter couldn't be run
};

struct VersionFacts {
  std::string ddprun;
  std::string system;  // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;
  std::string glibc;
};

// Imports of one script that warm starts have recorded as special (docs/WARM.md).
struct ImportFacts {
  struct Module {
    std::string name;
    std::string why;            // why the module can't be imported ahead; "" = it can
    uint32_t milliseconds = 0;  // how long its import took; 0 = not long
  };
  std::string script;
  std::vector<Module> modules;
};

struct MachineFacts {
  VersionFacts versions;
  HostnameFacts host;
  std::string container;  // "docker", "podman", "kubernetes", …; "" = none is noticed
  DriverFacts driver;
  std::vector<GpuFacts> gpus;  // in the order of their PCI ids
  CpuFacts cpu;
  MemoryFacts memory;
  std::optional<SharedMemoryFacts> shared_memory;  // nullopt = there is no /dev/shm
  std::optional<MachineLimits> limits;
  std::vector<InterfaceFacts> interfaces;
  std::vector<RdmaPort> rdma_ports;
  std::optional<ClockFacts> clock;
  std::string why_no_pidfds;  // why pidfds don't work; "" = they do
  PythonFacts python;
  std::vector<ImportFacts> imports;                // of scripts that were run with --warm on
  std::map<std::string, std::string> environment;  // of kEnvironmentOfInterest, those that are set
};

// The variables that change what a run does on this machine.
inline constexpr const char* kEnvironmentOfInterest[] = {
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",  "OMP_NUM_THREADS",        "NCCL_DEBUG",
    "NCCL_IB_DISABLE",      "NCCL_P2P_DISABLE",   "NCCL_SHM_DISABLE",       "NCCL_SOCKET_IFNAME",
    "NCCL_IB_HCA",          "GLOO_SOCKET_IFNAME", "TORCH_DISTRIBUTED_DEBUG"};

// The value of a variable; nullptr = it is not set.
const std::string* EnvironmentValue(const MachineFacts& facts, const std::string& name);

// Which of facts.gpus the workers see (visible_gpus.h). Numbers into facts.gpus.
std::vector<size_t> VisibleGpus(const MachineFacts& facts);
// The visible GPUs that answer.
std::vector<size_t> AnsweringGpus(const MachineFacts& facts);

// The memory that processes here can use: the machine's, or the cgroup's limit if that is less.
uint64_t UsableMemory(const MachineFacts& facts);

// A version of CUDA as the driver gives it: 12040 is "12.4".
std::string CudaVersionText(int version);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_FACTS_H_
