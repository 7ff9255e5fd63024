#include "worker/torch/checkpoint/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
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

absl::Status FailedCall(absl::string_view call, const std::string& path) {
  return ErrnoStatus(errno, absl::StrCat(call, " '", path, "'"));
}

std::string DirectoryOf(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return directory.empty() ? "." : directory;
}

// Makes the rename itself survive a crash.
absl::Status SyncDirectory(const std::string& directory) {
  const Fd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return FailedCall("open", directory);
  if (fsync(fd.get()) != 0) return FailedCall("fsync", directory);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), kTemporarySuffix);
  Fd file(open(temporary.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644));
  if (!file.valid()) return FailedCall("create", temporary);
  absl::Cleanup remove = [&] { unlink(temporary.c_str()); };
  for (const absl::string_view piece : pieces) {
    DDPRUN_RETURN_IF_ERROR(WriteAll(file.get(), piece));
  }
  if (fsync(file.get()) != 0) return FailedCall("fsync", temporary);
  if (close(file.Release()) != 0) return FailedCall("close", temporary);
  if (rename(temporary.c_str(), path.c_str()) != 0) return FailedCall("rename", temporary);
  std::move(remove).Cancel();
  return SyncDirectory(DirectoryOf(path));
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return ErrnoStatus(error.value(), absl::StrCat("create directory '", path, "'"));
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
