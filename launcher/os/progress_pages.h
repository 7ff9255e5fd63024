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
#include "base/training_report.h"
#include "launcher/core/witness.h"

namespace ddprun::launcher {

// What a page says about a stop step.
struct StopAnswer {
  bool heeds = false;      // the worker asks for one at each step
  uint64_t step = 0;       // as last marked
  uint64_t stands_at = 0;  // the step at which it waits or has stopped; 0 = none
};

// The pages of shared memory in which the workers of one generation mark their progress
// (docs/PROGRESS.md); gone with this object.
//
// Memory files, not files of the runtime directory: what a worker stores there is never written to
// a disk, which could hold it up, and their size is sealed, so that no worker can make the agent's
// loads fault. Workers open them as /proc/<agent>/fd/<number>.
// Threads: the loop's.
class ProgressPages {
 public:
  // `on_opened` is called when a worker opens its page for the first time; where the kernel can't
  // tell that (inotify(7)), watched() is false.
  // Errors: of memfd_create(2), mmap(2): RESOURCE_EXHAUSTED when there are too many descriptors.
  // Workers of the local ranks `kept` have a page among `last` (null = nobody has) already, which
  // is taken from there, as if it had never been marked: they must have stopped to mark. `last`
  // tells nothing of opened pages any more.
  static absl::StatusOr<std::unique_ptr<ProgressPages>> Create(EventLoop* loop, uint64_t generation,
                                                               uint32_t worker_count,
                                                               std::function<void()> on_opened,
                                                               ProgressPages* last = nullptr,
                                                               const std::set<uint32_t>& kept = {});
  ~ProgressPages();
  ProgressPages(const ProgressPages&) = delete;
  ProgressPages& operator=(const ProgressPages&) = delete;

  // What a worker gets as DDPRUN_PROGRESS.
  std::string path(uint32_t local_rank) const;
  bool watched() const { return watch_ != nullptr; }
  // The workers' words by local rank. One load each.
  std::vector<uint64_t> Words() const;
  // When they were stored, as the workers say, by local rank: anything, if one wants.
  std::vector<Instant> MarkTimes() const;
  // By local rank: collectives that were begun in the default group, and one, as last stored; 0 =
  // not known.
  std::vector<uint64_t> Collectives() const;
  // What each worker says of itself, by local rank; what is older than `fresh` is left out but for
  // the time-out, if it isn't final.
  std::vector<Witness> Witnesses(Instant now, absl::Duration fresh) const;
  // How long the worker that waited longest for data has done so, as they say.
  absl::Duration DataWait() const;

  // What the workers report of their training, all together.
  TrainingReport Training() const;

  uint32_t count() const { return static_cast<uint32_t>(pages_.size()); }
  // Holds workers that mark this step or a later one, until it is raised or committed.
  // What Words and Answer show afterwards was marked before, or will be held.
  void PrepareStop(uint64_t step);
  // Lets those that are held stop. Requires: prepared.
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
  // Whether any was opened since it was asked before.
  bool TakeOpened() const;

  std::vector<Page> pages_;
  Fd inotify_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PROGRESS_PAGES_H_
