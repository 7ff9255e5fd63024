#ifndef DDPRUN_WORKER_METRICS_DISK_SYNCER_H_
#define DDPRUN_WORKER_METRICS_DISK_SYNCER_H_

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "worker/metrics/append_file.h"

namespace ddprun::worker {

// Syncs files to the disk once an interval, on a thread of its own, because the disk may be busy
// with a checkpoint for seconds while training goes on.
class DiskSyncer {
 public:
  // Requires: the files outlive it.
  DiskSyncer(std::vector<const AppendFile*> files, absl::Duration interval);
  // Syncs a last time.
  ~DiskSyncer();
  DiskSyncer(const DiskSyncer&) = delete;
  DiskSyncer& operator=(const DiskSyncer&) = delete;

  // Syncs now, in the caller's thread. Threads: any.
  void Sync();

 private:
  void Run(absl::Duration interval);

  const std::vector<const AppendFile*> files_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool told_ = false;   // guarded by mutex_: an error was logged
  bool ended_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_DISK_SYNCER_H_
