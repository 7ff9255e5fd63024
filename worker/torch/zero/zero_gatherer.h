#ifndef DDPRUN_WORKER_TORCH_ZERO_ZERO_GATHERER_H_
#define DDPRUN_WORKER_TORCH_ZERO_ZERO_GATHERER_H_

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "worker/torch/optim/storage_on_use.h"
#include "worker/torch/zero/zero_storage.h"

namespace ddprun::worker {

// ZeRO-3's parameters: of each bucket a rank has its share, and the whole only around the operators
// that use it. An operator that uses another bucket has that one gathered, the one before freed,
// and the one after begun, which is the one that came next the last time that these two were used
// one after the other: so forward and backward passes each have their order, whatever the module's
// is.
//
// Gathering is a collective: all ranks use buckets in the same order.
// Threads: that of the backward pass, and the training loop's between passes.
class ZeroGatherer : public StorageOwner {
 public:
  // Frees the buckets. Requires: `storage` has shares apart; group and storage outlive it.
  ZeroGatherer(c10d::ProcessGroup& group, ZeroStorage& storage);
  ~ZeroGatherer() override;

  void BeforeUse(const std::vector<size_t>& buckets) override;
  void AfterWrite(const std::vector<size_t>& buckets) override;
  bool Holds() const override { return held_ > 0; }

  // Frees everything: shares are going to change. And when they have: gathers what is held again.
  void Forget();
  void Renew();
  // A peer is gone: what is used from now on has memory, but no values, and no rank is asked.
  void Abandon() { abandoned_ = true; }
  // Gathers everything, and keeps it, but for changes of shares, until Release.
  void Hold();
  void Release();

  // Of the step before the last Forget: buckets gathered, and those of them that were begun before
  // they were needed.
  int64_t gathered() const { return gathered_; }
  int64_t foreseen() const { return foreseen_; }
  // Of whole buckets, the most so far at once.
  int64_t most_bytes() const { return most_bytes_; }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  // Neither: it is freed.
  struct Whole {
    bool here = false;
    c10::intrusive_ptr<c10d::Work> work;  // null: it isn't on its way
    torch::Tensor input;
  };

  void Begin(size_t bucket);
  void Await(size_t bucket);
  void Free(size_t bucket);
  void FreeAllBut(const std::vector<size_t>& kept);
  void GatherAll();
  // The bucket after the last two; kNone: these two weren't used one after the other before.
  size_t Next() const;
  void Remember(size_t bucket);

  c10d::ProcessGroup& group_;
  ZeroStorage& storage_;
  std::vector<Whole> wholes_;  // by bucket
  size_t here_ = 0;            // how many are
  std::map<std::pair<size_t, size_t>, size_t> successors_;
  size_t before_last_ = kNone;
  size_t last_ = kNone;
  int held_ = 0;
  bool abandoned_ = false;
  int64_t gathers_ = 0;
  int64_t begun_ahead_ = 0;
  int64_t gathered_ = 0;
  int64_t foreseen_ = 0;
  int64_t bytes_ = 0;
  int64_t most_bytes_ = 0;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ZERO_ZERO_GATHERER_H_
