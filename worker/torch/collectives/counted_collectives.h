#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_COLLECTIVES_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_COLLECTIVES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace ddprun::worker {

// A c10d backend on the CPU that counts the collectives which this rank has begun. The ranks'
// counts show which rank the others wait for (docs/PROGRESS.md). The backend class itself counts,
// not a wrapper, because LibTorch casts a backend to its class by its name (c10d::Logger). Threads:
// any.
class CountedCollectives {
 public:
  CountedCollectives() = default;
  CountedCollectives(const CountedCollectives&) = delete;
  CountedCollectives& operator=(const CountedCollectives&) = delete;
  virtual ~CountedCollectives() = default;

  // Sets a function that is called at the beginning of each collective, on its thread, with the
  // number of collectives begun so far. Requires: none has begun.
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
