#ifndef DDPRUN_TESTS_WORKER_COUNTING_ALLOCATOR_H_
#define DDPRUN_TESTS_WORKER_COUNTING_ALLOCATOR_H_

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddprun::testing {

// Counts what lives of this process' tensors on the CPU, and the most that ever did.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int64_t live = live_ += static_cast<int64_t>(bytes);
    for (int64_t most = most_; live > most && !most_.compare_exchange_weak(most, live);) continue;
    auto* held = new Held{c10::GetDefaultCPUAllocator()->allocate(bytes), bytes};
    return {held->data.get(), held, &Free, c10::DeviceType::CPU};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static int64_t live() { return live_; }
  static int64_t most() { return most_; }
  static void ForgetMost() { most_ = live_.load(); }

 private:
  struct Held {
    c10::DataPtr data;
    size_t bytes;
  };
  static void Free(void* context) {
    auto* held = static_cast<Held*>(context);
    live_ -= static_cast<int64_t>(held->bytes);
    delete held;
  }
  static inline std::atomic<int64_t> live_ = 0;
  static inline std::atomic<int64_t> most_ = 0;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_COUNTING_ALLOCATOR_H_
