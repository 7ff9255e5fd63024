#include "launcher/logs/log_sampler.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/thread.h"

namespace ddprun::launcher {
namespace {

constexpr int kLookMs = 1000;

void Look(const LogFile& file) {
  struct stat facts {};
  if (stat(file.path.c_str(), &facts) != 0) return;
  file.history->Note(MonotonicNow(), static_cast<uint64_t>(facts.st_size));
}

// The newest files, and those of the generation before, whose rest may be written later.
class Sampler {
 public:
  explicit Sampler(std::shared_ptr<LogCatalog> catalog)
      : catalog_(std::move(catalog)), wake_(catalog_->Subscribe()) {}

  void Run() {
    while (!catalog_->closed()) {
      TakeNew();
      for (const LogFile& file : files_) Look(file);
      pollfd wake{.fd = wake_->get(), .events = POLLIN, .revents = 0};
      poll(&wake, 1, files_.empty() ? -1 : kLookMs);
      eventfd_t count = 0;
      if (wake.revents != 0) eventfd_read(wake_->get(), &count);
    }
  }

 private:
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
  uint64_t seen_ = 0;
  std::vector<LogFile> files_;
};

}  // namespace

absl::Status StartLogSampler(std::shared_ptr<LogCatalog> catalog) {
  DDPRUN_ASSIGN_OR_RETURN(std::thread thread,
                          StartThread("the sizes of logs", [catalog] { Sampler(catalog).Run(); }));
  thread.detach();
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
