#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_COLLECTIVES_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_COLLECTIVES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace ddprun::worker {

// A c10d backend on the CPU that counts the collectives which this rank has begun: by their numbers
// it is known which rank the others wait for (docs/PROGRESS.md). LibTorch casts backends to their
// classes by their names (c10d::Logger does), so what counts is the class itself and nothing around
// it. Threads: any.
class CountedCollectives {
 public:
  CountedCollectives() = default;
  CountedCollectives(const CountedCollectives&) = delete;
  CountedCollectives& operator=(const CountedCollectives&) = delete;
  virtual ~CountedCollectives() = default;

  // Called at the beginning of each collective, on its thread, with the number of those begun so
  // far. Requires: none has begun.
  void set_on_begin(std::function<void(uint64_t)> on_begin) { on_begin_ = std::move(on_begin); }

 protected:
  void CountOne() {
    const uint64_t begun = ++begun_;
    if (on_begin_) on_begin_(begun);
  }
  uint64_t begun() const { return begun_; }

 private:
  std::atomic<uint64_t> begun_ = 0;
  std::function<void(uint64_t)> on_begin_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_COLLECTIVES_H_
