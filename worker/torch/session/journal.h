#ifndef DDPRUN_WORKER_TORCH_SESSION_JOURNAL_H_
#define DDPRUN_WORKER_TORCH_SESSION_JOURNAL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ddprun::worker {

// One JSON line for each training step: {"t": CLOCK_MONOTONIC seconds, "generation", "rank",
// "world", "step", "loss", "pid"}. Workers of all generations append to one file.
class Journal {
 public:
  // Drops everything.
  Journal() = default;
  // Errors: of open(2), with the path.
  static absl::StatusOr<Journal> Open(const std::string& path);

  struct Line {
    uint64_t generation = 0;
    uint32_t rank = 0;
    uint32_t world = 0;
    int64_t step = 0;
    double loss = 0;
  };
  // Errors: of write(2), with the path.
  absl::Status Write(const Line& line) const;
  bool is_open() const { return fd_.valid(); }

 private:
  std::string path_;
  Fd fd_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_JOURNAL_H_
