#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_WRITER_LOCK_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_WRITER_LOCK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ddprun::worker {

// A directory of checkpoints has one job that writes there: of two, the later one would resume from
// the other's checkpoints, and each would delete the other's. Held as a lock of the kernel on the
// file ".writer" (fcntl(2), F_OFD_SETLK), which ends with the process, however that ends; the file
// says who has it. File servers that keep such locks make it one of all hosts.
//
// Threads: one. Move-only.
class WriterLock {
 public:
  // Who takes it.
  struct Writer {
    std::string run_id;     // "none" = the job has no name
    bool restarts = false;  // an earlier process of this job may still be about to end
  };

  // Holds nothing.
  WriterLock() = default;
  WriterLock(WriterLock&&) = default;
  WriterLock& operator=(WriterLock&& other) noexcept;
  ~WriterLock();

  // Makes the directory. Holds nothing where there can't be a lock: the file can't be made, or the
  // file system has none. The process of the same job's last start may hold it for some
  // milliseconds more; that is waited for, 5 s at most, and then the job goes on without the lock:
  // what a cut-off process of its own still writes counts as older (CheckpointId).
  // Errors: FAILED_PRECONDITION — another job has it; the text says which, on which host, and what
  // to do. ALREADY_EXISTS — a file stands where the directory should be.
  static absl::StatusOr<WriterLock> Take(const std::string& directory, const Writer& writer);

  bool is_held() const { return file_.valid(); }
  // Gives it back. Nothing where none is held.
  void Release();

 private:
  WriterLock(std::string path, Fd file);

  std::string path_;
  Fd file_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_WRITER_LOCK_H_
