#include "worker/metrics/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"

namespace ddprun::worker {

absl::StatusOr<AppendFile> AppendFile::Open(const std::string& path) {
  Fd fd(open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open '", path, "'"));
  return AppendFile(std::move(fd), path);
}

absl::Status AppendFile::Append(absl::string_view bytes) {
  const off_t before = lseek(fd_.get(), 0, SEEK_END);
  absl::Status written = WriteAll(fd_.get(), bytes);
  if (written.ok()) return written;
  // Half a record would spoil the next one.
  const bool cut = before >= 0 && ftruncate(fd_.get(), before) == 0;
  return absl::Status(written.code(), absl::StrCat("'", path_, "': ", written.message(),
                                                   cut ? "" : "; half a record may be left"));
}

absl::Status AppendFile::Sync() const {
  if (fdatasync(fd_.get()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("fdatasync '", path_, "'"));
}

DiskSyncer::DiskSyncer(std::vector<const AppendFile*> files, absl::Duration interval)
    : files_(std::move(files)), thread_([this, interval] { Run(interval); }) {}

DiskSyncer::~DiskSyncer() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
  Sync();
}

void DiskSyncer::Sync() {
  for (const AppendFile* file : files_) {
    const absl::Status synced = file->Sync();
    if (synced.ok()) continue;
    const std::lock_guard lock(mutex_);
    if (std::exchange(told_, true)) continue;
    Notify(absl::StrCat("metrics may be lost when this machine fails: ", synced.message()));
  }
}

void DiskSyncer::Run(absl::Duration interval) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, absl::ToChronoNanoseconds(interval), [this] { return ended_; })) {
    lock.unlock();
    Sync();
    lock.lock();
  }
}

}  // namespace ddprun::worker
