#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_PREFETCHER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_PREFETCHER_H_

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "ddprun/dataset.h"

namespace ddprun {

// Loads batches on threads of its own while the training loop computes, and hands them out in
// order. At most two batches a thread are ready or in the making.
// Threads: all methods one; `load` is called on all loading threads at once.
class Prefetcher {
 public:
  // Loads the batches 0 to count - 1. threads: 0 = Next() loads, on the caller's thread.
  Prefetcher(std::function<Batch(int64_t number)> load, int64_t count, int64_t threads);
  // Ends the threads, after the batches that they are at.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch; waits for it. Throws what `load` threw for it.
  // Requires: called at most `count` times.
  Batch Next();

 private:
  struct Loaded {
    Batch batch;
    std::exception_ptr error;
  };

  Loaded Load(int64_t number) const;
  void RunThread();

  const std::function<Batch(int64_t)> load_;
  const int64_t count_;
  const int64_t ahead_;
  int64_t handed_out_ = 0;  // changed with the mutex held

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  int64_t begun_ = 0;
  bool stopping_ = false;
  std::map<int64_t, Loaded> ready_;

  std::vector<std::thread> threads_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_PREFETCHER_H_
