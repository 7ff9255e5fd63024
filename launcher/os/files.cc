#include "launcher/os/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"

namespace ddprun::launcher {

absl::Status MakeFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("create directory '", path, "'"));
  return absl::OkStatus();
}

absl::Status MakeWritableFolder(const std::string& path) {
  DDPRUN_RETURN_IF_ERROR(MakeFolders(path));
  if (access(path.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("write to directory '", path, "'"));
}

absl::Status TryFolder(const std::string& path) {
  std::string file = path + "/ddprun_try_XXXXXX";
  const Fd fd(mkostemp(file.data(), O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("make a file in '", path, "'"));
  constexpr absl::string_view kBytes = "blat";
  const bool written = write(fd.get(), kBytes.data(), kBytes.size()) >= 0 || errno == EFBIG;
  const int error = errno;
  unlink(file.c_str());
  if (written) return absl::OkStatus();
  return ErrnoStatus(error, absl::StrCat("write a file in '", path, "'"));
}

std::vector<std::string> TemporaryFolders() {
  std::vector<std::string> folders;
  const auto add = [&folders](const std::filesystem::path& path) {
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(path, error);
    if (!error && !path.empty()) folders.push_back(absolute.string());
  };
  for (const char* name : {"TMPDIR", "TEMP", "TMP"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) add(value);
  }
  for (const char* path : {"/tmp", "/var/tmp", "/usr/tmp"}) add(path);
  std::error_code error;
  add(std::filesystem::current_path(error));  // none where it was removed
  add("/dev/shm");
  return folders;
}

std::vector<std::string> NamesIn(const std::string& folder, size_t most) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end && names.size() < most; entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void RemoveEmptyFolders(const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  std::filesystem::directory_iterator entry(path, ignored);
  for (; entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    if (entry->is_directory(ignored) && !entry->is_symlink(ignored)) {
      RemoveEmptyFolders(entry->path());
    }
  }
  rmdir(path.c_str());  // refuses what isn't empty
}

void RemoveFolder(const std::string& path) {
  if (path.empty()) return;
  // remove_all() fails if another process adds or removes a file meanwhile, as an ending service
  // does.
  constexpr int kTries = 20;
  std::error_code error;
  for (int i = 0; i < kTries; ++i) {
    std::filesystem::remove_all(path, error);
    if (!error) return;
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t bytes_max) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open '", path, "'"));
  std::string text(bytes_max + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = read(file.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read '", path, "'"));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("'", path, "' has more than ", bytes_max, " bytes"));
  }
  text.resize(size);
  return text;
}

absl::Status WriteFile(const std::string& path, absl::string_view text, mode_t mode) {
  const std::string draft = absl::StrCat(path, ".", getpid());
  Fd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open '", draft, "'"));
  const absl::Status written = WriteAll(file.get(), text);
  if (written.ok() && rename(draft.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  unlink(draft.c_str());
  if (written.ok()) return ErrnoStatus(error, absl::StrCat("rename to '", path, "'"));
  return absl::Status(written.code(), absl::StrCat("write '", draft, "': ", written.message()));
}

}  // namespace ddprun::launcher
