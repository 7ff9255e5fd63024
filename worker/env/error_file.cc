#include "worker/env/error_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"

namespace ddprun::worker {

std::string ErrorFileText(const WorkerError& error, int64_t epoch_seconds) {
  const std::string& stack = error.stack.empty() ? error.message : error.stack;
  const nlohmann::json json = {
      {"message",
       {{"message", error.message},
        {"extraInfo", {{"py_callstack", stack}, {"timestamp", absl::StrCat(epoch_seconds)}}}}}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status WriteErrorFile(const std::string& path, const WorkerError& error) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  Fd file(open(temporary.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("create error file '", temporary, "'"));
  const absl::Cleanup remove = [&] { unlink(temporary.c_str()); };
  const std::string text = ErrorFileText(error, absl::ToUnixSeconds(absl::Now()));
  DDPRUN_RETURN_IF_ERROR(WriteAll(file.get(), text));
  // link(2), unlike rename(2), keeps a file that another thread or process wrote first; some file
  // systems don't have it.
  if (link(temporary.c_str(), path.c_str()) == 0 || errno == EEXIST) return absl::OkStatus();
  if (rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("create error file '", path, "'"));
}

}  // namespace ddprun::worker
