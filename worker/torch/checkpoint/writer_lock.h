#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_WRITER_LOCK_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_WRITER_LOCK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ddprun::worker {

// Ensures that one job writes to a directory of checkpoints. Of two jobs, the later one would
// resume from the other's checkpoints, and each would delete the other's. The lock is the kernel's
// on the file ".writer" (fcntl(2), F_OFD_SETLK), and ends with the process, however that ends; the
// file names the job that holds it. On a file server that supports such locks it holds for all
// hosts.
//
// Threads: one. Move-only.
class WriterLock {
 public:
  // The job that takes the lock.
  struct Writer {
    std::string run_id;     // "none" = the job has no name
    bool restarts = false;  // an earlier process of this job may still be about to end
  };

  // Holds nothing.
  WriterLock() = default;
  WriterLock(WriterLock&&) = default;
  WriterLock& operator=(WriterLock&& other) noexcept;
  ~WriterLock();

  // Makes the directory and takes the lock. Returns without a lock if there can't be one: the file
  // can't be made, or the file system has no locks. A process of the same job's last start may hold
  // the lock for some milliseconds more. Take waits for that process, 5 s at most, and then goes on
  // without the lock: checkpoints that a cut-off process still writes count as older
  // (CheckpointId).
  // Errors: FAILED_PRECONDITION — another job has it; the text says which, on which host, and what
  // to do. ALREADY_EXISTS — a file stands where the directory should be.
  static absl::StatusOr<WriterLock> Take(const std::string& directory, const Writer& writer);

  bool is_held() const { return file_.valid(); }
  // Releases the lock, if it is held.
  void Release();

 private:
  WriterLock(std::string path, Fd file);

  std::string path_;
  Fd file_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_WRITER_LOCK_H_
