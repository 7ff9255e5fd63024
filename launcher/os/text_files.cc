#include "launcher/os/text_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/fd.h"

namespace ddprun::launcher {

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

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  const std::string draft = absl::StrCat(path, ".", getpid());
  Fd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open '", draft, "'"));
  const absl::Status written = WriteAll(file.get(), text);
  if (written.ok() && rename(draft.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  unlink(draft.c_str());
  return written.ok() ? ErrnoStatus(error, absl::StrCat("rename to '", path, "'")) : written;
}

}  // namespace ddprun::launcher
