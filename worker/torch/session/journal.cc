#include "worker/torch/session/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/errno_status.h"

namespace ddprun::worker {

absl::StatusOr<Journal> Journal::Open(const std::string& path) {
  Journal journal;
  journal.path_ = path;
  journal.fd_.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!journal.fd_.valid()) return ErrnoStatus(errno, absl::StrCat("open journal '", path, "'"));
  return journal;
}

absl::Status Journal::Write(const Line& line) const {
  if (!fd_.valid()) return absl::OkStatus();
  const nlohmann::ordered_json json = {
      {"t", static_cast<double>(MonotonicNow().nanoseconds()) / 1e9},
      {"generation", line.generation},
      {"rank", line.rank},
      {"world", line.world},
      {"step", line.step},
      {"loss", line.loss},
      {"pid", getpid()}};
  const absl::Status written = WriteAll(fd_.get(), absl::StrCat(json.dump(), "\n"));
  if (written.ok()) return written;
  return {written.code(), absl::StrCat("journal '", path_, "': ", written.message())};
}

}  // namespace ddprun::worker
