#ifndef DDPRUN_LAUNCHER_CLI_SYSTEM_HOST_H_
#define DDPRUN_LAUNCHER_CLI_SYSTEM_HOST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/options/host.h"

namespace ddprun::launcher {

// The machine that this process runs on. Threads: any, while no thread calls setenv(3).
class SystemHost : public Host {
 public:
  uint32_t CpuCount() const override;
  uint32_t CudaCount() const override;
  absl::StatusOr<CpuTopology> Topology() const override;
  absl::StatusOr<std::vector<GpuPlace>> Gpus(
      const std::optional<std::vector<std::string>>& visible) const override;
  PathKind KindOf(const std::string& path) const override;
  std::vector<std::string> NamesIn(const std::string& folder) const override;
  std::vector<std::string> VariableNames() const override;
  absl::Status CheckReadable(const std::string& path) const override;
  absl::StatusOr<std::string> FindProgram(const std::string& name) const override;
  absl::StatusOr<std::string> ReadFile(const std::string& path) const override;
  absl::Status CheckSecret(const std::string& path) const override;
  absl::Status CheckTls(const TlsFiles& tls) const override;
  std::optional<absl::Duration> SlurmTimeLeft(const std::string& job_id,
                                              int64_t end_time) const override;
  std::string SlurmNodeAddress(const std::string& node) const override;
  absl::StatusOr<uint32_t> TorchDevices(const std::string& python,
                                        const std::string& kind) const override;
  bool HasOtherAccelerators() const override;
  std::string ProgramFolder() const override;
  std::string HostName() const override;
  std::string RandomId() const override;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_SYSTEM_HOST_H_
