#include "launcher/agent/gpu_watch.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "launcher/machine/gpu_usage.h"
#include "launcher/os/processes.h"

namespace ddprun::launcher {
namespace {

// Shorter than the time between heartbeats (1 s), so that each finds a measurement due.
constexpr absl::Duration kGpuLookInterval = absl::Milliseconds(500);
// The driver can't notify of freed memory, so it is polled.
constexpr absl::Duration kLookInterval = absl::Milliseconds(20);
// How long a destructor waits for the driver.
constexpr absl::Duration kEndLimit = absl::Milliseconds(100);

}  // namespace

// What a thread that asks the driver, and may hang in it, shares with its owner.
template <typename Driver>
struct SharedWithThread {
  std::mutex mutex;  // guards what follows, in the derived class, too
  std::condition_variable changed;
  bool ended = false;              // set by the thread at its end
  std::unique_ptr<Driver> driver;  // used only by the thread once it runs
};

namespace {

// Runs `body` on a thread. Returns one that isn't joinable if there is none.
template <typename Shared>
std::thread RunOnDriver(const char* what, const std::shared_ptr<Shared>& shared,
                        void (*body)(const std::shared_ptr<Shared>&)) {
  return StartThread(what,
                     [shared, body] {
                       body(shared);
                       shared->driver.reset();
                       const std::lock_guard lock(shared->mutex);
                       shared->ended = true;
                       shared->changed.notify_all();
                     })
      .value_or(std::thread());
}

// Ends the thread, or abandons it. `end`: makes the body return; called with the mutex.
template <typename Shared>
void EndOnDriver(Shared& shared, std::thread& thread, const std::function<void()>& end) {
  bool ended = false;
  {
    std::unique_lock lock(shared.mutex);
    end();
    shared.changed.notify_all();
    ended = shared.changed.wait_for(lock, absl::ToChronoMilliseconds(kEndLimit),
                                    [&] { return shared.ended; });
  }
  ended ? thread.join() : thread.detach();
}

}  // namespace

struct GpuWatch::Shared : SharedWithThread<GpuUsage> {
  bool wanted = false;
  bool over = false;
  std::vector<rendezvous::GpuUse> seen;
};

GpuWatch::GpuWatch() {
  auto usage = GpuUsage::Load(ProcessEnvironment("CUDA_VISIBLE_DEVICES"));
  if (!usage.ok()) return;
  auto shared = std::make_shared<Shared>();
  shared->driver = *std::move(usage);
  thread_ = RunOnDriver("looks at the GPUs", shared, Look);
  if (thread_.joinable()) shared_ = std::move(shared);  // else as without the driver's library
}

GpuWatch::~GpuWatch() {
  if (shared_ != nullptr) EndOnDriver(*shared_, thread_, [this] { shared_->over = true; });
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
    absl::StatusOr<std::vector<rendezvous::GpuUse>> seen = shared->driver->Look();
    lock.lock();
    // No driver, or no GPU: nvmlInit may try to load the driver each time.
    // `ddprun doctor` reports why there is none.
    if (!seen.ok()) return;
    shared->seen = *std::move(seen);
  }
}

struct GpuRelease::Shared : SharedWithThread<GpuMemory> {
  struct Request {
    uint64_t number = 0;
    std::set<pid_t> pids;
    Instant asked;  // the wait counts from here, even if the thread starts late
    Instant deadline;
  };

  GpuRelease* owner = nullptr;  // null = it is gone, and so is its loop
  std::optional<Request> request;
};

GpuRelease::GpuRelease(EventLoop* loop, absl::Duration limit) : loop_(loop), limit_(limit) {
  if (limit_ == absl::ZeroDuration()) return;
  absl::StatusOr<std::unique_ptr<GpuMemory>> memory = GpuMemory::Load();
  if (!memory.ok()) return;
  auto shared = std::make_shared<Shared>();
  shared->owner = this;
  shared->driver = *std::move(memory);
  thread_ = RunOnDriver("GPU memory's release", shared, Watch);
  if (!thread_.joinable()) return;  // as without the driver's library
  shared_ = std::move(shared);
  limit_timer_ = std::make_unique<Timer>(loop_, [this] {
    Finish(waits_, {.waited = limit_, .holders = {}, .error = "the driver doesn't answer"});
  });
}

GpuRelease::~GpuRelease() {
  if (shared_ != nullptr) EndOnDriver(*shared_, thread_, [this] { shared_->owner = nullptr; });
}

void GpuRelease::Await(const std::set<pid_t>& kept, std::function<void(const Result&)> released) {
  std::set<pid_t> pids;
  std::set_difference(pids_.begin(), pids_.end(), kept.begin(), kept.end(),
                      std::inserter(pids, pids.end()));
  pids_ = kept;
  if (shared_ == nullptr || pids.empty()) return released({});
  released_ = std::move(released);
  const Instant now = loop_->Now();
  const Instant deadline = now + limit_;
  limit_timer_->Arm(deadline + kLookInterval * 5);  // the thread's own limit comes first
  const std::lock_guard lock(shared_->mutex);
  shared_->request = {
      .number = ++waits_, .pids = std::move(pids), .asked = now, .deadline = deadline};
  shared_->changed.notify_all();
}

void GpuRelease::Finish(uint64_t number, const Result& result) {
  if (number != waits_ || released_ == nullptr) return;
  limit_timer_->Disarm();
  const auto released = std::exchange(released_, nullptr);
  released(result);
}

// Runs on the thread. The first query only wakes the driver, which takes longest.
void GpuRelease::Watch(const std::shared_ptr<Shared>& shared) {
  absl::StatusOr<std::set<pid_t>> holders = shared->driver->Holders();
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->changed.wait(lock,
                         [&] { return shared->owner == nullptr || shared->request.has_value(); });
    if (shared->owner == nullptr) return;
    const Shared::Request request = *std::exchange(shared->request, std::nullopt);
    Result result;
    for (bool first = true;; first = false) {
      lock.unlock();
      holders = shared->driver->Holders();
      lock.lock();
      if (!holders.ok()) result.error = std::string(holders.status().message());
      result.holders.clear();
      if (holders.ok()) {
        std::set_intersection(holders->begin(), holders->end(), request.pids.begin(),
                              request.pids.end(),
                              std::inserter(result.holders, result.holders.end()));
      }
      const Instant now = MonotonicNow();
      if (!first) result.waited = now - request.asked;
      if (result.holders.empty() || now >= request.deadline) break;
      const auto gone = [&] { return shared->owner == nullptr; };
      if (shared->changed.wait_for(lock, absl::ToChronoMilliseconds(kLookInterval), gone)) return;
    }
    if (shared->owner == nullptr) return;
    shared->owner->loop_->Post([shared, number = request.number, result = std::move(result)] {
      GpuRelease* owner = nullptr;
      {
        const std::lock_guard guard(shared->mutex);
        owner = shared->owner;
      }
      if (owner != nullptr) owner->Finish(number, result);
    });
  }
}

}  // namespace ddprun::launcher
