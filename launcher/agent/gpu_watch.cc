#include "launcher/agent/gpu_watch.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/thread.h"
#include "launcher/machine/gpu_usage.h"
#include "launcher/os/process_environment.h"

namespace ddprun::launcher {
namespace {

// Shorter than the time between heartbeats (1 s), so that each finds a measurement due.
constexpr absl::Duration kGpuLookInterval = absl::Milliseconds(500);
// How long the destructor waits for the driver.
constexpr absl::Duration kGpuLookEndLimit = absl::Milliseconds(100);

}  // namespace

struct GpuWatch::Shared {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool wanted = false;
  bool over = false;
  bool ended = false;  // set by the thread at its end
  std::vector<rendezvous::GpuUse> seen;
  std::unique_ptr<GpuUsage> usage;  // used only by the thread once it runs
};

GpuWatch::GpuWatch() {
  auto usage = GpuUsage::Load(ProcessEnvironment("CUDA_VISIBLE_DEVICES"));
  if (!usage.ok()) return;
  auto shared = std::make_shared<Shared>();
  shared->usage = *std::move(usage);
  absl::StatusOr<std::thread> thread = StartThread("looks at the GPUs", [shared] {
    Look(shared);
    shared->usage.reset();
    const std::lock_guard lock(shared->mutex);
    shared->ended = true;
    shared->changed.notify_all();
  });
  if (!thread.ok()) return;  // as without the driver's library
  thread_ = *std::move(thread);
  shared_ = std::move(shared);
}

GpuWatch::~GpuWatch() {
  if (shared_ == nullptr) return;
  bool ended = false;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->over = true;
    shared_->changed.notify_all();
    ended = shared_->changed.wait_for(lock, absl::ToChronoMilliseconds(kGpuLookEndLimit),
                                      [&] { return shared_->ended; });
  }
  ended ? thread_.join() : thread_.detach();
}

std::vector<rendezvous::GpuUse> GpuWatch::Take(Instant now) {
  if (shared_ == nullptr) return {};
  const std::lock_guard lock(shared_->mutex);
  if (now >= next_look_) {
    next_look_ = now + kGpuLookInterval;
    shared_->wanted = true;
    shared_->changed.notify_all();
  }
  std::vector<rendezvous::GpuUse> seen = std::exchange(shared_->seen, {});
  for (const rendezvous::GpuUse& gpu : seen) {
    if (!gpu.lost || !lost_.insert(gpu.index).second) continue;
    Notify(
        absl::StrCat("warning: GPU ", gpu.index,
                     " is lost to its driver: workers that use it fail or hang. 'ddprun doctor' on "
                     "this machine says how to run without it"));
  }
  return seen;
}

// Runs on the thread.
void GpuWatch::Look(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->changed.wait(lock, [&] { return shared->over || shared->wanted; });
    if (shared->over) return;
    shared->wanted = false;
    lock.unlock();
    absl::StatusOr<std::vector<rendezvous::GpuUse>> seen = shared->usage->Look();
    lock.lock();
    // No driver, or no GPU: nvmlInit may try to load the driver each time.
    // `ddprun doctor` reports why there is none.
    if (!seen.ok()) return;
    shared->seen = *std::move(seen);
  }
}

}  // namespace ddprun::launcher
