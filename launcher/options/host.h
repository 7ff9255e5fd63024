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
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {

// The command line's interface to this machine, replaced in tests. Threads: any.
class Host {
 public:
  enum class PathKind { kMissing, kFile, kDirectory, kOther };

  virtual ~Host() = default;

  virtual uint32_t CpuCount() const = 0;   // CPUs that this process may use, at least 1
  virtual uint32_t CudaCount() const = 0;  // CUDA devices that this process may use
  // CPUs, cores and NUMA nodes. Errors: the text names the file or library that can't be read.
  virtual absl::StatusOr<CpuTopology> Topology() const = 0;
  // The GPUs of CUDA_VISIBLE_DEVICES=`visible`, in CUDA's order; nullopt = not set.
  // Errors: the text names the GPU, and what can't be read.
  virtual absl::StatusOr<std::vector<GpuPlace>> Gpus(
      const std::optional<std::vector<std::string>>& visible) const = 0;
  // The kind of the file at `path`, links followed.
  virtual PathKind KindOf(const std::string& path) const = 0;
  // OK when this process may read `path`; else its errno (ErrnoStatus) with the path.
  virtual absl::Status CheckReadable(const std::string& path) const = 0;
  // Names in a folder, for suggestions: at most some thousands, in no order; empty if the folder
  // can't be read.
  virtual std::vector<std::string> NamesIn(const std::string& /*folder*/) const { return {}; }
  // The program that execvp(3) would run for `name`: with a '/' that path, else from PATH.
  // Errors: errno with the name.
  virtual absl::StatusOr<std::string> FindProgram(const std::string& name) const = 0;
  // The first 256 KiB of a file. Errors: errno with the path.
  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) const = 0;
  // OK if a file with a secret is private, or isn't a regular file; else an error with its mode and
  // the command that changes it.
  virtual absl::Status CheckSecret(const std::string& /*path*/) const { return absl::OkStatus(); }
  // OK if TLS works with these certificates and this key now; else an error that names the file.
  virtual absl::Status CheckTls(const TlsFiles& /*tls*/) const { return absl::OkStatus(); }
  // How long a Slurm job may still run.
  // Params: end_time: seconds since 1970 from Slurm; 0 = not given, so squeue(1) is run.
  // Returns: nullopt = no limit, or not known.    Bound: 5 s.
  virtual std::optional<absl::Duration> SlurmTimeLeft(const std::string& /*job_id*/,
                                                      int64_t /*end_time*/) const {
    return std::nullopt;
  }
  // The address of a Slurm node: its name if that resolves; else Slurm's own address of the node
  // (scontrol show node) if that resolves.
  // Returns: `node` if neither does.    Bound: the resolver's own timeouts, and 5 s.
  virtual std::string SlurmNodeAddress(const std::string& node) const { return node; }
  // How many devices torch has of `kind`: "gpu" (CUDA or ROCm), "auto" (its current accelerator),
  // or a module of torch, for example "xpu". Runs that interpreter, which takes seconds. Errors:
  // the interpreter can't be run, has no torch, or has one without such devices.    Bound: 60 s.
  virtual absl::StatusOr<uint32_t> TorchDevices(const std::string& /*python*/,
                                                const std::string& kind) const {
    return absl::NotFoundError(kind);
  }
  // Whether the machine has devices besides CUDA's that torch may compute on, so that
  // TorchDevices() is worth its time.
  virtual bool HasOtherAccelerators() const { return false; }
  // The folder that this program was started from, links followed; "" = not known.
  virtual std::string ProgramFolder() const { return ""; }
  // The names of the variables in this process's environment, to find misspelled ones.
  virtual std::vector<std::string> VariableNames() const { return {}; }
  // From gethostname(2).
  virtual std::string HostName() const { return ""; }
  // A fresh name for a job, as a version 4 UUID (RFC 9562).
  virtual std::string RandomId() const = 0;
};

// This machine, but with any GPUs: a job's file may be written on another machine than its own.
class AnyGpus : public Host {
 public:
  explicit AnyGpus(const Host& host) : host_(host) {}
  uint32_t CpuCount() const override { return host_.CpuCount(); }
  uint32_t CudaCount() const override {
    const uint32_t here = host_.CudaCount();
    return here == 0 ? rendezvous::kWorkersPerNodeMax : here;
  }
  absl::StatusOr<CpuTopology> Topology() const override { return host_.Topology(); }
  absl::StatusOr<std::vector<GpuPlace>> Gpus(
      const std::optional<std::vector<std::string>>& visible) const override {
    return host_.Gpus(visible);
  }
  PathKind KindOf(const std::string& path) const override { return host_.KindOf(path); }
  absl::Status CheckReadable(const std::string& path) const override {
    return host_.CheckReadable(path);
  }
  absl::StatusOr<std::string> FindProgram(const std::string& name) const override {
    return host_.FindProgram(name);
  }
  absl::StatusOr<std::string> ReadFile(const std::string& path) const override {
    return host_.ReadFile(path);
  }
  absl::Status CheckSecret(const std::string& path) const override {
    return host_.CheckSecret(path);
  }
  // Doesn't import torch, which knows nothing of the other machine.
  absl::StatusOr<uint32_t> TorchDevices(const std::string&, const std::string&) const override {
    return rendezvous::kWorkersPerNodeMax;
  }
  std::string ProgramFolder() const override { return host_.ProgramFolder(); }
  std::string HostName() const override { return host_.HostName(); }
  std::string RandomId() const override { return host_.RandomId(); }

 private:
  const Host& host_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_HOST_H_
