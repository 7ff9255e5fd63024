#ifndef DDPRUN_TOOLS_CHAOS_WORKER_MARKS_H_
#define DDPRUN_TOOLS_CHAOS_WORKER_MARKS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"
#include "base/instant.h"

namespace ddprun::launcher {

// Reads the progress pages (docs/PROGRESS.md) of one node's workers of one generation, without help
// of their agent: the pages are found by the workers' DDPRUN_PROGRESS, and the mappings outlive
// agent and workers. Threads: the loop's.
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
  // When Words() should be called next to find the first mark soon after it is made: often after a
  // worker has opened its page, seldom in the first second after its start (a page may have been
  // opened before we watched it), else never.
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

#endif  // DDPRUN_TOOLS_CHAOS_WORKER_MARKS_H_
