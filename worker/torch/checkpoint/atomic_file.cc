#include "worker/torch/checkpoint/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"

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

namespace {

absl::Status FailedCall(absl::string_view call, const std::string& path) {
  return ErrnoStatus(errno, absl::StrCat(call, " '", path, "'"));
}

std::string DirectoryOf(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return directory.empty() ? "." : directory;
}

bool IsDirectory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces) {
  FileCalls& calls = CurrentFileCalls();
  const std::string temporary = absl::StrCat(path, ".", getpid(), kTemporarySuffix);
  DDPRUN_ASSIGN_OR_RETURN(Fd file, calls.Create(temporary));
  absl::Cleanup remove = [&] { calls.Remove(temporary).IgnoreError(); };
  for (const absl::string_view piece : pieces) {
    DDPRUN_RETURN_IF_ERROR(calls.Write(file, temporary, piece));
  }
  DDPRUN_RETURN_IF_ERROR(calls.SyncFile(file, temporary));
  if (close(file.Release()) != 0) return FailedCall("close", temporary);
  DDPRUN_RETURN_IF_ERROR(calls.Rename(temporary, path));
  std::move(remove).Cancel();
  return calls.SyncDirectory(DirectoryOf(path));
}

absl::Status MakeDirectories(const std::string& path) {
  if (IsDirectory(path)) return absl::OkStatus();
  // "a/b/" has the parent "a/b".
  const std::string parent = DirectoryOf(path);
  DDPRUN_RETURN_IF_ERROR(MakeDirectories(parent));
  absl::Status made = CurrentFileCalls().MakeDirectory(path);
  if (!made.ok() && !IsDirectory(path)) return made;
  return CurrentFileCalls().SyncDirectory(parent);
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), &closedir);
  if (directory == nullptr) return FailedCall("open directory", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) return FailedCall("read directory", path);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ddprun::worker
