#ifndef DDPRUN_TESTS_UNIT_WORKER_TORCH_CHECKPOINT_RECORDED_DISK_H_
#define DDPRUN_TESTS_UNIT_WORKER_TORCH_CHECKPOINT_RECORDED_DISK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "worker/torch/checkpoint/atomic_file.h"

namespace ddprun::testing {

// Carries file calls out as the kernel does, and records them for LeaveAfterCrash(). Threads: any.
class RecordedDisk : public worker::FileCalls {
 public:
  enum class Kind {
    kMakeDirectory,
    kCreate,
    kWrite,
    kSyncFile,
    kRename,
    kSyncDirectory,
    kRemove,
    kSaid  // what the program has promised so far
  };
  struct Call {
    Kind kind;
    std::string path = "";
    std::string to = "";     // of a rename
    std::string bytes = "";  // of a write
    int64_t said = 0;
  };

  absl::Status MakeDirectory(const std::string& path) override;
  absl::StatusOr<Fd> Create(const std::string& path) override;
  absl::Status Write(const Fd& file, const std::string& path, absl::string_view bytes) override;
  absl::Status SyncFile(const Fd& file, const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status Remove(const std::string& path) override;
  void Say(int64_t number) { Note({.kind = Kind::kSaid, .said = number}); }

  std::vector<Call> calls() const;

 protected:
  virtual void Note(Call call);

 private:
  mutable std::mutex mutex_;
  std::vector<Call> calls_;  // guarded by mutex_
};

// Puts into the empty directory `to` what may be found of `from` when the machine's power fails
// after the first `count` calls. Only synced bytes of a file and synced names of a directory are
// sure; any part of the rest may have reached the disk, in any order: all, none, a beginning, or
// anything else. A rename happens or it doesn't; the former name may survive it. Bytes that were
// not written are zeros or rubbish; files may be shorter than they were.
void LeaveAfterCrash(const std::vector<RecordedDisk::Call>& calls, size_t count, Rng& rng,
                     const std::string& from, const std::string& to);

// The number of the save that was resumed; nullopt: none was.
using ResumedSave = std::optional<int64_t>;
constexpr int64_t kTornSave = -1;
using CheckpointReader = std::function<ResumedSave(const std::string& directory)>;

struct CrashTally {
  int torn = 0;
  int lost = 0;       // what was promised isn't there
  int from_none = 0;  // there was nothing, rightly
  int newest = 0;     // the last save that had begun was there
};

// Makes `points` crashes, after each call in turn, of saves of `from` with the numbers 1, 2, ….
// Each crash leaves the directory `left`, which is read.
CrashTally CrashAfterEachCall(const std::vector<RecordedDisk::Call>& calls, int points,
                              const std::string& from, const std::string& left,
                              const CheckpointReader& read);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_UNIT_WORKER_TORCH_CHECKPOINT_RECORDED_DISK_H_
