#include "ddprun/prefetcher.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/check.h"

namespace ddprun {

Prefetcher::Prefetcher(std::function<Batch(int64_t number)> load, int64_t count, int64_t threads)
    : load_(std::move(load)), count_(count), ahead_(2 * threads) {
  for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { RunThread(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Prefetcher::Loaded Prefetcher::Load(int64_t number) const {
  const at::NoGradGuard no_grad;
  try {
    return {.batch = load_(number), .error = nullptr};
  } catch (...) {
    return {.batch = {}, .error = std::current_exception()};
  }
}

void Prefetcher::RunThread() {
  at::init_num_threads();  // as many for each operation as the training thread has
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(
        lock, [this] { return stopping_ || begun_ == count_ || begun_ < handed_out_ + ahead_; });
    if (stopping_ || begun_ == count_) return;
    const int64_t number = begun_++;
    lock.unlock();
    Loaded loaded = Load(number);
    lock.lock();
    ready_.emplace(number, std::move(loaded));
    changed_.notify_all();
  }
}

Batch Prefetcher::Next() {
  DDPRUN_CHECK(handed_out_ < count_, "there are no more batches");
  Loaded loaded;
  if (threads_.empty()) {
    loaded = Load(handed_out_++);
  } else {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return ready_.contains(handed_out_); });
    loaded = std::move(ready_.extract(handed_out_).mapped());
    ++handed_out_;
    lock.unlock();
    changed_.notify_all();
  }
  if (loaded.error != nullptr) std::rethrow_exception(loaded.error);
  return std::move(loaded.batch);
}

}  // namespace ddprun
