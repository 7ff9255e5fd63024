#include "tools/config/config_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/log.h"

namespace ddprun::launcher {
namespace {

std::optional<std::string> AskOnTerminal(const std::string& question) {
  std::fputs(question.c_str(), stderr);
  char* buffer = nullptr;
  size_t size = 0;
  const ssize_t length = getline(&buffer, &size, stdin);
  const std::unique_ptr<char, void (*)(void*)> owned(buffer, std::free);
  if (length < 0) return std::nullopt;
  return std::string(buffer, static_cast<size_t>(length));
}

absl::Status WriteAll(const Fd& file, const std::string& path, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("write '", path, "'"));
    text.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// Beside the file first, so that one that is there stays whole until the new one is. link(2) and
// rename(2) differ in what they do to a file of that name.
absl::Status WriteFile(const ConfigOptions& options) {
  const std::string& path = options.path;
  const std::string fresh = absl::StrCat(path, ".", getpid(), ".new");
  const Fd file(
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, options.secret ? 0600 : 0644));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("create '", fresh, "'"));
  absl::Status written = WriteAll(file, fresh, options.text);
  if (written.ok() && options.force) {
    if (rename(fresh.c_str(), path.c_str()) == 0) return absl::OkStatus();
    written = ErrnoStatus(errno, absl::StrCat("replace '", path, "'"));
  } else if (written.ok() && link(fresh.c_str(), path.c_str()) != 0) {
    written = errno == EEXIST ? absl::AlreadyExistsError(absl::StrCat(
                                    "'", path, "' is there already; --force replaces it"))
                              : ErrnoStatus(errno, absl::StrCat("create '", path, "'"));
  }
  unlink(fresh.c_str());
  return written;
}

absl::Status Write(ConfigOptions options, const Host& host) {
  if (options.text.empty()) {
    if (isatty(STDIN_FILENO) == 0) {
      return absl::InvalidArgumentError(
          "there is nothing to write; give options as for a run, or answer the questions in a "
          "terminal");
    }
    absl::StatusOr<std::string> text = AskForConfig(options.path, AskOnTerminal, host);
    if (!text.ok()) return text.status();
    options.text = *std::move(text);
  }
  if (options.path != "-") {
    if (absl::Status written = WriteFile(options); !written.ok()) return written;
    Notify(absl::StrCat("wrote ", options.path, "; run it with: ddprun --config ", options.path));
    return absl::OkStatus();
  }
  const bool shown = std::fputs(options.text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return shown ? absl::OkStatus() : ErrnoStatus(errno, "write to standard output");
}

}  // namespace

int WriteConfig(ConfigOptions options, const Host& host) {
  const absl::Status written = Write(std::move(options), host);
  if (written.ok()) return 0;
  Notify(absl::StrCat("error: ", written.message()));
  return written.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace ddprun::launcher
