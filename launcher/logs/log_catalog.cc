#include "launcher/logs/log_catalog.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "launcher/core/output_layout.h"
#include "launcher/os/files.h"

namespace ddprun::launcher {
namespace {

constexpr int kRandomLetters = 8;

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

std::string TemporaryFolder() {
  const std::vector<std::string> bases = TemporaryFolders();
  const auto base = std::find_if(bases.begin(), bases.end(),
                                 [](const std::string& path) { return TryFolder(path).ok(); });
  return absl::StrCat(base == bases.end() ? bases.front() : *base, "/torchelastic_",
                      RandomName(kRandomLetters));
}

}  // namespace

LogFolders::LogFolders(const std::string& log_dir, const std::string& run_id)
    : root_(Absolute(log_dir.empty() ? TemporaryFolder() : log_dir)),
      temporary_(log_dir.empty()),
      run_(absl::StrCat(root_, "/", RunFolderName(run_id, RandomName(kRandomLetters)))) {}

LogFolders::~LogFolders() {
  if (temporary_) RemoveEmptyFolders(root_);
}

absl::StatusOr<std::string> LogFolders::MakeAttempt(uint32_t restart_count, uint64_t generation) {
  std::string attempt = absl::StrCat(run_, "/", AttemptFolderName(restart_count));
  std::error_code ignored;
  if (std::filesystem::exists(attempt, ignored)) {
    attempt = absl::StrCat(run_, "/", AttemptFolderName(restart_count, generation));
  }
  DDPRUN_RETURN_IF_ERROR(MakeFolders(attempt));
  return attempt;
}

void LogCatalog::Add(const std::vector<LogFile>& files) {
  const std::lock_guard lock(mutex_);
  for (const LogFile& file : files) files_.push_back(file);
  while (files_.size() > kFilesMax) {
    files_.pop_front();
    ++dropped_;
  }
  Wake();
}

void LogCatalog::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  Wake();
}

bool LogCatalog::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void LogCatalog::ThinHistories(Instant now) const {
  const std::lock_guard lock(mutex_);
  for (const LogFile& file : files_) file.history->Thin(now);
}

std::vector<LogFile> LogCatalog::TakeNew(uint64_t* seen) const {
  const std::lock_guard lock(mutex_);
  const size_t first = *seen > dropped_ ? static_cast<size_t>(*seen - dropped_) : 0;
  *seen = dropped_ + files_.size();
  return {files_.begin() + static_cast<std::ptrdiff_t>(first), files_.end()};
}

std::shared_ptr<const Fd> LogCatalog::Subscribe() {
  auto fd = std::make_shared<const Fd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::lock_guard lock(mutex_);
  std::erase_if(subscribers_, [](const auto& subscriber) { return subscriber.expired(); });
  subscribers_.push_back(fd);
  return fd;
}

void LogCatalog::Wake() {
  for (const auto& subscriber : subscribers_) {
    if (const auto fd = subscriber.lock(); fd != nullptr) eventfd_write(fd->get(), 1);
  }
}

namespace {

constexpr int kPauseMs = 1000;

void Look(const LogFile& file) {
  struct stat facts {};
  if (stat(file.path.c_str(), &facts) != 0) return;
  file.history->Note(MonotonicNow(), static_cast<uint64_t>(facts.st_size));
}

// Samples the sizes of the newest files, and of those of the generation before, which may still
// grow.
class Sampler {
 public:
  explicit Sampler(std::shared_ptr<LogCatalog> catalog)
      : catalog_(std::move(catalog)),
        wake_(catalog_->Subscribe()),
        writes_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

  void Run() {
    while (!catalog_->closed()) {
      TakeNew();
      // The watch first: what is written between the two is seen by either.
      bool all_watched = true;
      for (const LogFile& file : files_) {
        all_watched = Watch(file) && all_watched;
        Look(file);
      }
      if (!AwaitCatalog(kPauseMs)) AwaitCatalogOrWrite(all_watched);
    }
  }

 private:
  // Requests an event for the next write to the file only, so that a busy file costs one wake a
  // pause. Returns false if the kernel is out of watches (/proc/sys/fs/inotify) or the file was
  // removed; the file is then looked at after each pause.
  bool Watch(const LogFile& file) const {
    return writes_.valid() &&
           inotify_add_watch(writes_.get(), file.path.c_str(), IN_MODIFY | IN_ONESHOT) >= 0;
  }

  // True as soon as the catalog has changed or is closed.
  bool AwaitCatalog(int timeout_ms) const {
    pollfd wake{.fd = wake_->get(), .events = POLLIN, .revents = 0};
    poll(&wake, 1, files_.empty() ? -1 : timeout_ms);
    return TakeWake(wake);
  }

  void AwaitCatalogOrWrite(bool all_watched) const {
    pollfd both[] = {{.fd = wake_->get(), .events = POLLIN, .revents = 0},
                     {.fd = writes_.get(), .events = POLLIN, .revents = 0}};
    poll(both, 2, all_watched ? -1 : 0);
    TakeWake(both[0]);
    char events[4096];
    while (read(writes_.get(), events, sizeof(events)) > 0) {
    }
  }

  bool TakeWake(const pollfd& wake) const {
    eventfd_t count = 0;
    if (wake.revents != 0) eventfd_read(wake_->get(), &count);
    return wake.revents != 0;
  }

  void TakeNew() {
    const uint64_t before = files_.empty() ? 0 : files_.back().generation;
    const std::vector<LogFile> files = catalog_->TakeNew(&seen_);
    if (files.empty()) return;
    for (const LogFile& file : files_) Look(file);
    std::erase_if(files_, [&](const LogFile& file) {
      // A worker that was kept goes on in its file.
      const bool goes_on = std::any_of(files.begin(), files.end(), [&](const LogFile& other) {
        return other.path == file.path;
      });
      return file.generation < before || goes_on;
    });
    files_.insert(files_.end(), files.begin(), files.end());
    catalog_->ThinHistories(MonotonicNow());
  }

  const std::shared_ptr<LogCatalog> catalog_;
  const std::shared_ptr<const Fd> wake_;
  const Fd writes_;  // inotify(7)
  uint64_t seen_ = 0;
  std::vector<LogFile> files_;
};

}  // namespace

absl::Status StartLogSampler(std::shared_ptr<LogCatalog> catalog) {
  DDPRUN_ASSIGN_OR_RETURN(
      std::thread thread,
      StartThread("the sizes of logs", [catalog = std::move(catalog)] { Sampler(catalog).Run(); }));
  thread.detach();
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
