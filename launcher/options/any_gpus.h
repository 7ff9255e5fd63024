#ifndef DDPRUN_LAUNCHER_OPTIONS_ANY_GPUS_H_
#define DDPRUN_LAUNCHER_OPTIONS_ANY_GPUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/options/host.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {

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

#endif  // DDPRUN_LAUNCHER_OPTIONS_ANY_GPUS_H_
