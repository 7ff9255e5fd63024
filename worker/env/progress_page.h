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

// The worker's page of progress (docs/PROGRESS.md), by which its agent learns how long its steps
// take and notices when it hangs.
//
// A page that was never opened takes marks too, and drops them: a program needn't ask whether its
// launcher is ddprun. Threads: any may mark; the last mark counts.
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
  // Marks the top of a training step, and says whether the program is to save now and end with 0:
  // a node of the job is about to be taken away, and all ranks get true at the same step (R14). May
  // wait for some milliseconds while that step is agreed on.
  bool StopAt(uint64_t step);
  // Adds to what this worker has waited for data; for docs/GOODPUT.md. Negative times are ignored.
  void AddDataWait(absl::Duration waited);
  // How many collectives of all workers this one has begun since their group was made, and one; 0 =
  // they have none. By it is known who holds up the others. One store.
  void CountCollectives(uint64_t begun_and_one);
  // What people who watch see of this worker's training (docs/PROGRESS.md); what isn't given stays
  // as it was. Params: loss: of its last batches; NaN is shown as such. samples_per_second: of this
  // worker; not below 0.
  void Report(std::optional<double> loss, std::optional<double> samples_per_second);
  bool is_open() const { return page_ != nullptr; }
  // As last marked; phase kNone without a mark.
  uint64_t word() const;

 private:
  void StoreTime();
  explicit ProgressPage(void* page) : page_(page) {}
  std::atomic<uint64_t>* Field(size_t offset) const;

  void* page_ = nullptr;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_PROGRESS_PAGE_H_
