#include "ddprun/elastic_loader.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

constexpr uint32_t kThreadsMax = 1024;
constexpr uint32_t kAheadMax = 65536;

}  // namespace

ShareLoader::ShareLoader(const ElasticSampler& sampler, Load load,
                         const ElasticLoaderOptions& options)
    : load_(std::move(load)),
      ahead_(options.ahead > 0 ? options.ahead : 2 * uint64_t{options.threads}),
      has_threads_(options.threads > 0),
      sampler_(sampler) {
  DDPRUN_CHECK(options.threads <= kThreadsMax && options.ahead <= kAheadMax,
               "a loader has at most 1024 threads, and 65536 shares ahead");
  for (uint32_t i = 0; i < options.threads; ++i) threads_.emplace_back([this] { RunThread(); });
}

ShareLoader::~ShareLoader() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<std::shared_ptr<void>> ShareLoader::LoadShare(const StepShare& share) const {
  try {
    return load_(share);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("the samples of the step at ", share.first,
                                            " of epoch ", share.epoch,
                                            " could not be loaded: ", error.what()));
  }
}

void ShareLoader::RunThread() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || slots_.size() < ahead_; });
    if (stopping_) return;
    // Dealt and queued under one lock, so that the queue has the order of the deals. If the queue
    // is dropped meanwhile, this thread alone still has the slot.
    const auto slot = std::make_shared<Slot>();
    slot->share = sampler_.Deal();
    slots_.push_back(slot);
    lock.unlock();
    absl::StatusOr<std::shared_ptr<void>> batch = LoadShare(slot->share);
    lock.lock();
    slot->batch = std::move(batch);
    slot->loaded = true;
    changed_.notify_all();
  }
}

absl::StatusOr<ShareLoader::Loaded> ShareLoader::Next() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!has_threads_ && slots_.empty()) {
    const auto slot = std::make_shared<Slot>();
    slot->share = sampler_.Deal();
    slot->batch = LoadShare(slot->share);
    slot->loaded = true;
    slots_.push_back(slot);
  }
  changed_.wait(lock, [this] { return !slots_.empty() && slots_.front()->loaded; });
  const std::shared_ptr<Slot> slot = slots_.front();
  if (!slot->batch.ok()) return slot->batch.status();
  slots_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return Loaded{.share = std::move(slot->share), .batch = *std::move(slot->batch)};
}

absl::Status ShareLoader::Commit(const StepShare& share) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sampler_.Commit(share);
}

void ShareLoader::DropAhead() {
  slots_.clear();
  changed_.notify_all();
}

absl::Status ShareLoader::Reform(uint32_t rank, uint32_t world_size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  DDPRUN_RETURN_IF_ERROR(sampler_.Reform(rank, world_size));
  DropAhead();
  return absl::OkStatus();
}

absl::Status ShareLoader::Restore(const SamplerState& state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  DDPRUN_RETURN_IF_ERROR(sampler_.Restore(state));
  DropAhead();
  return absl::OkStatus();
}

SamplerState ShareLoader::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sampler_.state();
}

}  // namespace ddprun
