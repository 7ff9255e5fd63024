#ifndef DDPRUN_LAUNCHER_OS_PROGRESS_PAGES_H_
#define DDPRUN_LAUNCHER_OS_PROGRESS_PAGES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/instant.h"
#include "base/progress_page.h"
#include "launcher/core/witness.h"

namespace ddprun::launcher {

// A worker's side of a stop step, as its page shows it.
struct StopAnswer {
  bool heeds = false;      // the worker checks for a stop step at each step
  uint64_t step = 0;       // as last marked
  uint64_t stands_at = 0;  // the step at which it waits or has stopped; 0 = none
};

// The pages of shared memory in which the workers of one generation mark their progress
// (docs/PROGRESS.md); they end with this object.
//
// They are memory files, not files of the runtime directory: a store to a file on a disk may block
// while the page is written back, and a truncated file would make the agent's loads fault. The size
// of these is sealed. Workers open them as /proc/<agent>/fd/<number>.
// Threads: the loop's.
class ProgressPages {
 public:
  // `on_opened` is called when a worker opens its page for the first time; if the kernel can't
  // notify of that (inotify(7)), watched() is false. Workers of the local ranks `kept` keep their
  // page from `last` (null = none are kept), with its marks reset; they must have stopped marking.
  // `last` calls its `on_opened` no more. Errors: of memfd_create(2), mmap(2): RESOURCE_EXHAUSTED
  // when there are too many descriptors.
  static absl::StatusOr<std::unique_ptr<ProgressPages>> Create(EventLoop* loop, uint64_t generation,
                                                               uint32_t worker_count,
                                                               std::function<void()> on_opened,
                                                               ProgressPages* last = nullptr,
                                                               const std::set<uint32_t>& kept = {});
  ~ProgressPages();
  ProgressPages(const ProgressPages&) = delete;
  ProgressPages& operator=(const ProgressPages&) = delete;

  // A worker's DDPRUN_PROGRESS.
  std::string path(uint32_t local_rank) const;
  bool watched() const { return watch_ != nullptr; }
  // The workers' words by local rank. One load each.
  std::vector<uint64_t> Words() const;
  // When the words were stored, by local rank. Untrusted: a worker may store any time.
  std::vector<Instant> MarkTimes() const;
  // By local rank: collectives begun in the default group, plus one; 0 = not known.
  std::vector<uint64_t> Collectives() const;
  // The workers' self-reports, by local rank. Of a report older than `fresh` and not final, only
  // the time-out is returned, and what was begun in the groups: a worker whose interpreter is
  // locked adds nothing to that.
  std::vector<Witness> Witnesses(Instant now, absl::Duration fresh) const;
  // The longest time that a worker says it has waited for data.
  absl::Duration DataWait() const;

  // The workers' reports about their training, combined.
  TrainingReport Training() const;

  uint32_t count() const { return static_cast<uint32_t>(pages_.size()); }
  // Holds workers that mark this step or a later one, until the step is raised or committed. A mark
  // that Words() and Answer() show afterwards was made before, or its worker is held.
  void PrepareStop(uint64_t step);
  // Lets the held workers stop. Requires: PrepareStop(step).
  void CommitStop(uint64_t step);
  StopAnswer Answer(uint32_t local_rank) const;

 private:
  struct Page {
    Fd file;
    void* memory = nullptr;
    uint64_t data_wait_before = 0;  // nanoseconds, in earlier generations
  };

  ProgressPages() = default;
  absl::Status Add(uint64_t generation);
  void Take(Page* page, uint64_t generation);
  void Watch(EventLoop* loop, std::function<void()> on_opened, ProgressPages* last);
  // Whether a page was opened since the last call.
  bool TakeOpened() const;

  std::vector<Page> pages_;
  Fd inotify_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PROGRESS_PAGES_H_
