#ifndef DDPRUN_TESTS_WORKER_COUNTING_ALLOCATOR_H_
#define DDPRUN_TESTS_WORKER_COUNTING_ALLOCATOR_H_

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "ddprun/context.h"

namespace ddprun::testing {

// Counts the bytes of this process' live tensors on the CPU, and their maximum. A block's size is
// stored in front of the memory that the tensor sees: some kernels free memory by its address
// alone.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int64_t live = live_ += static_cast<int64_t>(bytes);
    for (int64_t most = most_; live > most && !most_.compare_exchange_weak(most, live);) continue;
    auto* whole = static_cast<char*>(c10::GetDefaultCPUAllocator()->raw_allocate(bytes + kHead));
    *reinterpret_cast<size_t*>(whole) = bytes;
    return {whole + kHead, whole + kHead, &Free, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static int64_t live() { return live_; }
  // Returns the least of many counts, with a barrier before each: a backend's thread releases a
  // collective's tensors a little after the caller has the result.
  static absl::StatusOr<int64_t> LiveAtRest(Context& context) {
    int64_t least = live_;
    for (int look = 0; look < 100; ++look) {
      DDPRUN_RETURN_IF_ERROR(context.Barrier());
      least = std::min<int64_t>(least, live_);
    }
    return least;
  }
  static int64_t most() { return most_; }
  static void ForgetMost() { most_ = live_.load(); }

 private:
  static constexpr size_t kHead = 64;  // keeps the alignment
  static void Free(void* data) {
    if (data == nullptr) return;
    char* whole = static_cast<char*>(data) - kHead;
    live_ -= static_cast<int64_t>(*reinterpret_cast<size_t*>(whole));
    c10::GetDefaultCPUAllocator()->raw_deallocate(whole);
  }
  static inline std::atomic<int64_t> live_ = 0;
  static inline std::atomic<int64_t> most_ = 0;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_COUNTING_ALLOCATOR_H_
