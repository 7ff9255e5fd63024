#ifndef DDPRUN_WORKER_ENV_PROGRESS_PAGE_H_
#define DDPRUN_WORKER_ENV_PROGRESS_PAGE_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/progress_page.h"

namespace ddprun::worker {

// The worker's progress page (docs/PROGRESS.md), from which its agent reads how long steps take and
// whether the worker hangs.
//
// A page that wasn't opened ignores marks, so that a program needn't check whether its launcher is
// ddprun. Threads: any may mark; the last mark counts.
class ProgressPage {
 public:
  ProgressPage() = default;
  // Maps the page at `path`, the value of DDPRUN_PROGRESS.
  // Errors: of open(2) and mmap(2); FAILED_PRECONDITION — no page, or one of another version.
  static absl::StatusOr<ProgressPage> Open(const std::string& path);
  ~ProgressPage();
  ProgressPage(ProgressPage&& other) noexcept;
  ProgressPage& operator=(ProgressPage&& other) noexcept;

  // One store, no system call. `step`: counts the program's training steps and never goes back in a
  // generation; below 2^56.
  void Mark(ProgressPhase phase, uint64_t step);
  // Marks the top of a training step, and returns whether the program has to save now and end with
  // 0, because a node of the job is about to be taken away. All ranks get true at the same step
  // (R14). May wait for some milliseconds while the ranks agree on that step.
  bool StopAt(uint64_t step);
  // Adds to the time that this worker has waited for data (docs/GOODPUT.md). Negative times are
  // ignored.
  void AddDataWait(absl::Duration waited);
  // Stores 1 + the number of collectives that this worker has begun in its group of all workers; 0
  // = there is no group. The workers' counts show which one the others wait for. One store.
  void CountCollectives(uint64_t begun_and_one);
  // Reports figures for people who watch the training (docs/PROGRESS.md); nullopt leaves a figure
  // as it was. Params: loss: of this worker's last batches; NaN is shown as such.
  // samples_per_second: of this worker; not below 0.
  void Report(std::optional<double> loss, std::optional<double> samples_per_second);
  bool is_open() const { return page_ != nullptr; }
  // The last mark; phase kNone without a mark.
  uint64_t word() const;

 private:
  void StoreTime();
  explicit ProgressPage(void* page) : page_(page) {}
  std::atomic<uint64_t>* Field(size_t offset) const;

  void* page_ = nullptr;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_PROGRESS_PAGE_H_
