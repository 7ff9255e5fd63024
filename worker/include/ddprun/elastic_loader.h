#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_ELASTIC_LOADER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_ELASTIC_LOADER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/elastic_sampler.h"

namespace ddprun {

struct ElasticLoaderOptions {
  uint32_t threads = 2;  // at most 1024; 0 = Next() loads, on the thread that calls it
  // Shares that are loaded, or being loaded, before the training loop asks for them: at most 65536;
  // 0 = two for each thread.
  uint32_t ahead = 0;
};

// ElasticLoader without the type of its batches.
class ShareLoader {
 public:
  using Load = std::function<absl::StatusOr<std::shared_ptr<void>>(const StepShare& share)>;
  struct Loaded {
    StepShare share;
    std::shared_ptr<void> batch;
  };

  // Requires: the options are within their bounds.
  ShareLoader(const ElasticSampler& sampler, Load load, const ElasticLoaderOptions& options);
  ~ShareLoader();
  ShareLoader(const ShareLoader&) = delete;
  ShareLoader& operator=(const ShareLoader&) = delete;

  absl::StatusOr<Loaded> Next();
  absl::Status Commit(const StepShare& share);
  absl::Status Reform(uint32_t rank, uint32_t world_size);
  absl::Status Restore(const SamplerState& state);
  SamplerState state() const;

 private:
  struct Slot {
    StepShare share;
    bool loaded = false;
    absl::StatusOr<std::shared_ptr<void>> batch;
  };

  absl::StatusOr<std::shared_ptr<void>> LoadShare(const StepShare& share) const;
  void RunThread();
  // Forgets what was read ahead. Requires: mutex_ is held.
  void DropAhead();

  const Load load_;
  const uint64_t ahead_;
  const bool has_threads_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  ElasticSampler sampler_;
  std::deque<std::shared_ptr<Slot>> slots_;  // what was dealt ahead, in order
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

// Loads the batches of an ElasticSampler on threads of its own while the training loop computes,
// and returns them in order, epoch after epoch. Batches that were read ahead don't count as
// consumed: a state has what was committed (docs/DATA.md). Threads: one for all methods; `load` is
// called on all loading threads at once.
template <typename Batch>
class ElasticLoader {
 public:
  // Loads share.indices, which may be empty. An exception counts as an error.
  using Load = std::function<absl::StatusOr<Batch>(const StepShare& share)>;
  struct Step {
    StepShare share;
    Batch batch;
  };

  // Requires: the options are within their bounds.
  ElasticLoader(const ElasticSampler& sampler, Load load, const ElasticLoaderOptions& options = {})
      : loader_(
            sampler,
            [load =
                 std::move(load)](const StepShare& share) -> absl::StatusOr<std::shared_ptr<void>> {
              absl::StatusOr<Batch> batch = load(share);
              if (!batch.ok()) return batch.status();
              return std::make_shared<Batch>(*std::move(batch));
            },
            options) {}
  // Waits for the batches that are being loaded, and ends the threads.
  ~ElasticLoader() = default;

  // Waits for the next step and returns it. Errors: `load`'s, the same at each call until Reform()
  // or Restore(): a share that can't be loaded is never skipped.
  absl::StatusOr<Step> Next() {
    absl::StatusOr<ShareLoader::Loaded> loaded = loader_.Next();
    if (!loaded.ok()) return loaded.status();
    return Step{.share = std::move(loaded->share),
                .batch = std::move(*static_cast<Batch*>(loaded->batch.get()))};
  }

  // The methods of ElasticSampler. Reform() and Restore() drop the batches that were read ahead;
  // their samples are dealt anew.
  absl::Status Commit(const StepShare& share) { return loader_.Commit(share); }
  absl::Status Reform(uint32_t rank, uint32_t world_size) {
    return loader_.Reform(rank, world_size);
  }
  absl::Status Restore(const SamplerState& state) { return loader_.Restore(state); }
  SamplerState state() const { return loader_.state(); }

 private:
  ShareLoader loader_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_ELASTIC_LOADER_H_
