#include "worker/metrics/disk_syncer.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace ddprun::worker {

DiskSyncer::DiskSyncer(std::vector<const AppendFile*> files, absl::Duration interval)
    : files_(std::move(files)), thread_([this, interval] { Run(interval); }) {}

DiskSyncer::~DiskSyncer() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
  Sync();
}

void DiskSyncer::Sync() {
  for (const AppendFile* file : files_) {
    const absl::Status synced = file->Sync();
    if (synced.ok()) continue;
    const std::lock_guard lock(mutex_);
    if (std::exchange(told_, true)) continue;
    Notify(absl::StrCat("metrics may be lost when this machine fails: ", synced.message()));
  }
}

void DiskSyncer::Run(absl::Duration interval) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, absl::ToChronoNanoseconds(interval), [this] { return ended_; })) {
    lock.unlock();
    Sync();
    lock.lock();
  }
}

}  // namespace ddprun::worker
