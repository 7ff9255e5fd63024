#ifndef DDPRUN_LAUNCHER_MACHINE_HOST_PROBE_H_
#define DDPRUN_LAUNCHER_MACHINE_HOST_PROBE_H_

#include <netdb.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "launcher/core/cpu_binding.h"

namespace ddprun::launcher {

// Facts of this machine. Files are read below `root` ("" in production), so that tests can have
// their own /proc and /sys. Threads: any.

// CPUs that this process may run on: sched_getaffinity(2). Empty = the kernel doesn't say.
CpuSet AllowedCpus();

// CPUs that this process may use: sched_getaffinity(2), cut by the cgroup's CPU quota (v2 cpu.max
// or v1 cpu.cfs_quota_us, rounded up). At least 1.
uint32_t UsableCpuCount(const std::string& root = "");

// The CPU quota of this process's cgroup and of those above it, in whole CPUs, rounded up; none =
// no limit. Source: the kernel's cgroup-v2.rst (cpu.max) and sched-bwc.rst (cpu.cfs_*).
std::optional<uint32_t> CgroupCpuQuota(const std::string& root = "");

// CUDA devices that a worker would see: what <root>/proc/driver/nvidia/gpus lists, 0 without a
// driver; when `cuda_visible_devices` is set, its entries up to the first one that names no device,
// as CUDA reads it ("" = none, "0,-1,1" = one). nullptr = unset.
uint32_t CudaDeviceCount(const char* cuda_visible_devices, const std::string& root = "");
// Whether NVIDIA's GPUs may be here that CudaDeviceCount() can't count: WSL 2 (/dev/dxg) and
// containers of LXD (/dev/nvidiactl) don't have the driver's folder in /proc. Threads: any.
bool HasUnlistedGpus(const std::string& root = "");

// gethostname(2).
std::string Hostname();

// The addresses of `host` (a name or a literal, without brackets).
// Errors, with getaddrinfo's text: NOT_FOUND — the name doesn't exist; UNAVAILABLE — the resolver
// can't answer. Blocks: at most the resolver's own timeouts.
absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host);

// True when one of `host`'s addresses is this machine's own (IsOwnAddress, base/address.h).
// Errors: as ResolveHost.
absl::StatusOr<bool> IsLocalHost(const std::string& host);

// The source address of packets to `host` (connect(2) on UDP; sends nothing).
absl::StatusOr<std::string> LocalAddressToward(const std::string& host, uint16_t port);

// A TCP port reserved for the workers' store (R11): bound with SO_REUSEADDR, closed on exec.
// Without a listener the kernel gives the port to no other process, but a worker's own server can
// bind it.
struct ReservedPort {
  Fd socket;
  uint16_t port = 0;
};
// `port` 0 = any, except `avoided`, which others may need; at all addresses of this machine, like
// torch's own server. Errors: UNAVAILABLE with the port and errno.
absl::StatusOr<ReservedPort> ReservePort(uint16_t port, const std::vector<uint16_t>& avoided = {});
// Listens: no other process can bind the port from now on, and connections wait to be accepted.
// Errors: UNAVAILABLE — another process listens on the port.
absl::Status ListenOn(const ReservedPort& port);

// Advice for a user's port that is taken, if the kernel assigns such ports to connections: "; the
// kernel gives ports …"; else "". Source: ip(7), ip_local_port_range.
std::string KernelPortsHint(uint16_t port, const std::string& root = "");

// OK when a server could listen on host:port now; else UNAVAILABLE with the address and errno
// (EADDRINUSE, EADDRNOTAVAIL, EACCES).
absl::Status CheckListenable(const std::string& host, uint16_t port);

struct FreeAddressList {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddressList>;

// getaddrinfo(3) for a stream socket. `port` 0 = none asked for.
// Errors, with getaddrinfo's text: NOT_FOUND — the name doesn't exist; UNAVAILABLE — the resolver
// can't answer. Blocks as the resolver does.
absl::StatusOr<AddressList> LookUp(const std::string& host, uint16_t port);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_HOST_PROBE_H_
