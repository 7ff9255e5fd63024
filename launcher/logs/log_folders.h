#ifndef DDPRUN_LAUNCHER_LOGS_LOG_FOLDERS_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_FOLDERS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// The folders of one agent's logs: <log dir>/<run id>_<random8>/attempt_<restart count>/<local
// rank>, torchrun's layout (docs/LOGS.md). Made when they are needed, with the mode that the umask
// leaves. Files of older attempts are never touched.
// Threads: one.
class LogFolders {
 public:
  // `log_dir`: --log_dir. "" = a temporary one, torchelastic_<random8> in the first of
  // TemporaryFolders() that can be written.
  LogFolders(const std::string& log_dir, const std::string& run_id);

  // Makes the folder for a generation. Errors: the folder can't be made; the text names it.
  absl::StatusOr<std::string> MakeAttempt(uint32_t restart_count, uint64_t generation);

  // The log directory, absolute: a worker that changes its directory still finds its files.
  const std::string& root() const { return root_; }
  // This job's folder in it.
  const std::string& folder() const { return run_; }
  bool temporary() const { return temporary_; }

 private:
  std::string root_;
  bool temporary_;
  std::string run_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_FOLDERS_H_
