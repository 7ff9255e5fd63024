#include "launcher/logs/log_catalog.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace ddprun::launcher {

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

}  // namespace ddprun::launcher
