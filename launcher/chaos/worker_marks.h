#ifndef DDPRUN_LAUNCHER_CHAOS_WORKER_MARKS_H_
#define DDPRUN_LAUNCHER_CHAOS_WORKER_MARKS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"
#include "base/instant.h"

namespace ddprun::launcher {

// Reads the pages of progress (docs/PROGRESS.md) of one node's workers of one generation, as a
// stranger to their agent: it finds them by the workers' own DDPRUN_PROGRESS, and what it has
// mapped outlives agent and workers.
// Threads: the loop's.
class WorkerMarks {
 public:
  // `on_opened`: a worker has opened its page, so that marks may come from now on.
  WorkerMarks(EventLoop* loop, uint32_t worker_count, std::function<void()> on_opened);
  ~WorkerMarks();
  WorkerMarks(const WorkerMarks&) = delete;
  WorkerMarks& operator=(const WorkerMarks&) = delete;

  void OnStarted(uint32_t local_rank, pid_t pid);
  // The words by local rank, one load each; 0 = never marked.
  std::vector<uint64_t> Words();
  // When Words() should be called next to find a mark soon after it is made, as long as there is
  // none: often after a worker has opened its page, seldom in the first second after its start
  // (what opened its page before we watched it is found then), else never.
  Instant NextLook(Instant now) const;
  bool opened() const { return opened_; }

 private:
  struct Page {
    pid_t pid = 0;
    Instant started;
    const void* memory = nullptr;
  };

  void Map(Page* page);

  EventLoop* loop_;
  std::function<void()> on_opened_;
  std::vector<Page> pages_;
  bool opened_ = false;
  Fd inotify_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CHAOS_WORKER_MARKS_H_
