#include "worker/torch/checkpoint/atomic_file.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/file_calls.h"

namespace ddprun::worker {
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
