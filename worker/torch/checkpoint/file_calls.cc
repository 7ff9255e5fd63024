#include "worker/torch/checkpoint/file_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"

namespace ddprun::worker {
namespace {

absl::Status Outcome(bool succeeded, absl::string_view call, const std::string& path) {
  if (succeeded) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat(call, " '", path, "'"));
}

std::atomic<FileCalls*> in_use = nullptr;

}  // namespace

absl::Status FileCalls::MakeDirectory(const std::string& path) {
  return Outcome(mkdir(path.c_str(), 0777) == 0, "create directory", path);
}

absl::StatusOr<Fd> FileCalls::Create(const std::string& path) {
  Fd file(open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644));
  if (!file.valid()) return Outcome(false, "create", path);
  return file;
}

absl::Status FileCalls::Write(const Fd& file, const std::string& path, absl::string_view bytes) {
  absl::Status written = WriteAll(file.get(), bytes);
  if (written.ok()) return written;
  return {written.code(), absl::StrCat("write '", path, "': ", written.message())};
}

absl::Status FileCalls::SyncFile(const Fd& file, const std::string& path) {
  return Outcome(fsync(file.get()) == 0, "fsync", path);
}

absl::Status FileCalls::Rename(const std::string& from, const std::string& to) {
  return Outcome(rename(from.c_str(), to.c_str()) == 0, "rename", from);
}

absl::Status FileCalls::SyncDirectory(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return Outcome(false, "open", path);
  return Outcome(fsync(fd.get()) == 0, "fsync", path);
}

absl::Status FileCalls::Remove(const std::string& path) {
  return Outcome(unlink(path.c_str()) == 0, "remove", path);
}

FileCalls& CurrentFileCalls() {
  static FileCalls kernel;
  FileCalls* replaced = in_use.load();
  return replaced != nullptr ? *replaced : kernel;
}

void UseFileCalls(FileCalls* calls) { in_use = calls; }

}  // namespace ddprun::worker
