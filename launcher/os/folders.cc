#include "launcher/os/folders.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
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
  // It gives up where somebody else adds or removes a file meanwhile, as a service does that ends.
  constexpr int kTries = 20;
  std::error_code error;
  for (int i = 0; i < kTries; ++i) {
    std::filesystem::remove_all(path, error);
    if (!error) return;
  }
}

}  // namespace ddprun::launcher
