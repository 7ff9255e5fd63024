#ifndef DDPRUN_LAUNCHER_OPTIONS_HOST_H_
#define DDPRUN_LAUNCHER_OPTIONS_HOST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tls_files.h"
#include "launcher/core/cpu_binding.h"

namespace ddprun::launcher {

// What the command line asks this machine, so that its tests bring their own. Threads: any.
class Host {
 public:
  enum class PathKind { kMissing, kFile, kDirectory, kOther };

  virtual ~Host() = default;

  virtual uint32_t CpuCount() const = 0;   // CPUs that this process may use, at least 1
  virtual uint32_t CudaCount() const = 0;  // CUDA devices that it may use
  // CPUs, cores and NUMA nodes. Errors: with what can't be read, or loaded to read it.
  virtual absl::StatusOr<CpuTopology> Topology() const = 0;
  // The GPUs of CUDA_VISIBLE_DEVICES=`visible`, in CUDA's order; nullopt = it isn't set.
  // Errors: with the GPU, and what can't be read.
  virtual absl::StatusOr<std::vector<GpuPlace>> Gpus(
      const std::optional<std::vector<std::string>>& visible) const = 0;
  // What is at `path`, links followed.
  virtual PathKind KindOf(const std::string& path) const = 0;
  // OK when this process may read `path`; else its errno (ErrnoStatus) with the path.
  virtual absl::Status CheckReadable(const std::string& path) const = 0;
  // Names in a folder, for guesses at what was meant: at most some thousands, in no order; none
  // where it can't be read.
  virtual std::vector<std::string> NamesIn(const std::string& /*folder*/) const { return {}; }
  // The program that execvp(3) would run for `name`: with a '/' that path, else from PATH.
  // Errors: errno with the name.
  virtual absl::StatusOr<std::string> FindProgram(const std::string& name) const = 0;
  // The first 256 KiB of a file. Errors: errno with the path.
  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) const = 0;
  // OK when a file with a secret is private enough, or is no regular file; else which mode it has,
  // and the command that changes it.
  virtual absl::Status CheckSecret(const std::string& /*path*/) const { return absl::OkStatus(); }
  // OK when these are certificates and a key that TLS works with at this time; else what is wrong
  // with which file.
  virtual absl::Status CheckTls(const TlsFiles& /*tls*/) const { return absl::OkStatus(); }
  // How long a job of Slurm may still run.
  // Params: end_time: seconds since 1970 as Slurm gave it; 0 = it didn't, so squeue(1) is asked.
  // Returns: nullopt = without a limit, or nobody knows.    Bound: 5 s.
  virtual std::optional<absl::Duration> SlurmTimeLeft(const std::string& /*job_id*/,
                                                      int64_t /*end_time*/) const {
    return std::nullopt;
  }
  // Where a node of Slurm is reached: by its name if the resolver knows that; otherwise by the
  // address that Slurm has (scontrol show node), if that one resolves.
  // Returns: `node` if neither does.    Bound: the resolver's own timeouts, and 5 s.
  virtual std::string SlurmNodeAddress(const std::string& node) const { return node; }
  // How many devices torch has of `kind`: "gpu" (CUDA or ROCm), "auto" (its current accelerator),
  // or a module of torch as "xpu". Asked of that interpreter, which takes seconds. Errors: it can't
  // be run, or has no torch, or none with such devices.    Bound: 60 s.
  virtual absl::StatusOr<uint32_t> TorchDevices(const std::string& /*python*/,
                                                const std::string& kind) const {
    return absl::NotFoundError(kind);
  }
  // The machine has devices that torch may compute on and that aren't CUDA's: it is worth asking.
  virtual bool HasOtherAccelerators() const { return false; }
  // The folder that this program was started from, links followed; "" = not known.
  virtual std::string ProgramFolder() const { return ""; }
  // The names of the variables in this process's environment, to find typing errors in.
  virtual std::vector<std::string> VariableNames() const { return {}; }
  // As gethostname(2) has it.
  virtual std::string HostName() const { return ""; }
  // A fresh name for a job, as a version 4 UUID (RFC 9562).
  virtual std::string RandomId() const = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_HOST_H_
