#include "worker/torch/checkpoint/writer_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/atomic_file.h"

namespace ddprun::worker {
namespace {

constexpr const char* kName = ".writer";
constexpr const char* kNoName = "none";
// An agent kills a worker that doesn't end in time before it starts the next one. What remains are
// the milliseconds in which the kernel frees a killed process' memory.
constexpr int kLongestEndMilliseconds = 5000;

// The holder of the lock, as the file names it.
struct Holder {
  std::string run_id;
  std::string host;
  pid_t pid = 0;  // 0 = unknown
  std::string since;
};

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string HolderText(const WriterLock::Writer& writer) {
  const nlohmann::ordered_json text = {
      {"run_id", writer.run_id},
      {"host", HostName()},
      {"pid", getpid()},
      {"since", absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::Now(), absl::UTCTimeZone())}};
  return text.dump() + "\n";
}

Holder ReadHolder(const Fd& file) {
  std::array<char, 1024> bytes = {};
  const ssize_t length = pread(file.get(), bytes.data(), bytes.size(), 0);
  const auto fields = nlohmann::json::parse(bytes.data(), bytes.data() + (length > 0 ? length : 0),
                                            nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) return {};
  return {.run_id = fields.value("run_id", ""),
          .host = fields.value("host", ""),
          .pid = fields.value("pid", 0),
          .since = fields.value("since", "")};
}

enum class LockOutcome { kTaken, kHeld, kNoLocks };

LockOutcome TryLock(const Fd& file) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  while (fcntl(file.get(), F_OFD_SETLK, &whole) != 0) {
    if (errno == EAGAIN || errno == EACCES) return LockOutcome::kHeld;
    if (errno != EINTR) return LockOutcome::kNoLocks;
  }
  return LockOutcome::kTaken;
}

// A holder removes the file before it releases the lock, and another job may then have made a new
// file: a lock on an unlinked file excludes nobody.
bool IsAt(const Fd& file, const std::string& path) {
  struct stat own = {};
  struct stat there = {};
  return fstat(file.get(), &own) == 0 && stat(path.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

// Waits for the holder's process. Returns whether there was one, and it has ended.
bool AwaitEnd(const Holder& holder) {
  if (holder.pid <= 0 || holder.pid == getpid() || holder.host != HostName()) return false;
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, holder.pid, 0)));
  if (!process.valid()) return errno == ESRCH;
  pollfd wait = {.fd = process.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = poll(&wait, 1, kLongestEndMilliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// "run abc, pid 4711 on host n1, since 2026-11-29 13:49:02 UTC".
std::string HolderWords(const Holder& holder) {
  if (holder.pid <= 0) return "a process that hasn't said which";
  return absl::StrCat(holder.run_id == kNoName ? "" : absl::StrCat("run ", holder.run_id, ", "),
                      "pid ", holder.pid, " on host ", holder.host, ", since ", holder.since);
}

absl::Status HeldByAnother(const std::string& directory, const Holder& holder) {
  return absl::FailedPreconditionError(absl::StrCat(
      "'", directory, "' has the checkpoints of another job: ", HolderWords(holder),
      ". Each of two jobs would delete the other's checkpoints and resume from them: give this one "
      "another --output_dir (--checkpoint_dir), or end that one first; if its host is gone, remove "
      "'",
      directory, "/", kName, "'; to begin with its checkpoints, --resume_from '", directory, "'"));
}

}  // namespace

WriterLock::WriterLock(std::string path, Fd file)
    : path_(std::move(path)), file_(std::move(file)) {}

WriterLock& WriterLock::operator=(WriterLock&& other) noexcept {
  if (this == &other) return *this;
  Release();
  path_ = std::move(other.path_);
  file_ = std::move(other.file_);
  return *this;
}

WriterLock::~WriterLock() { Release(); }

void WriterLock::Release() {
  if (!file_.valid()) return;
  // Under the lock, so that no other process can have locked a file of this name.
  if (IsAt(file_, path_)) unlink(path_.c_str());
  file_.Reset();
}

absl::StatusOr<WriterLock> WriterLock::Take(const std::string& directory, const Writer& writer) {
  // If the directory can't be made, the first save fails, with a text of its own.
  const absl::Status made = MakeDirectories(directory);
  if (absl::IsAlreadyExists(made)) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", directory, "' can't have checkpoints: ", made.message(),
                     ", and it is no directory; give another --output_dir (--checkpoint_dir)"));
  }
  if (!made.ok()) return WriterLock();
  const std::string path = absl::StrCat(directory, "/", kName);
  bool has_waited = false;
  while (true) {
    Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!file.valid()) return WriterLock();
    switch (TryLock(file)) {
      case LockOutcome::kNoLocks:
        return WriterLock();
      case LockOutcome::kTaken: {
        if (!IsAt(file, path)) continue;
        const std::string text = HolderText(writer);
        if (ftruncate(file.get(), 0) != 0 || !WriteAll(file.get(), text).ok()) {
          Log(LogLevel::kInfo, absl::StrCat("'", path, "' doesn't name the job that has it"));
        }
        return WriterLock(path, std::move(file));
      }
      case LockOutcome::kHeld:
        break;
    }
    const Holder holder = ReadHolder(file);
    const bool same_name = holder.run_id == writer.run_id;
    const bool is_own = same_name && writer.run_id != kNoName;
    if (!has_waited && same_name && (is_own || writer.restarts)) {
      has_waited = true;
      if (AwaitEnd(holder)) continue;
    }
    if (!is_own) return HeldByAnother(directory, holder);
    Log(LogLevel::kWarning,
        absl::StrCat(
            "'", directory, "' is still locked by ", HolderWords(holder),
            ": an earlier process of this job, by the run id; this one goes on. If that is "
            "another job, give one of both another --output_dir (--checkpoint_dir)"));
    return WriterLock();
  }
}

}  // namespace ddprun::worker
