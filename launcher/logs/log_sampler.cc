#include "launcher/logs/log_sampler.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/thread.h"

namespace ddprun::launcher {
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
