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

// ZeRO-3's parameters: a rank keeps its share of each bucket, and has a whole bucket only around
// the operators that use it. When an operator uses a bucket that isn't here, the others are freed,
// the bucket is gathered, and the gather of the bucket that will probably come next is begun (how
// that one is found stands in zero_gatherer.cc).
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

  // Before the shares change: frees all buckets.
  void Forget();
  // After the shares have changed: gathers all buckets again if they are held.
  void Renew();
  // After the loss of a peer: from now on a bucket in use gets memory with zeros, and no collective
  // is begun.
  void Abandon() { abandoned_ = true; }
  // After the last step: an error of a gather also says how one rank uses parameters alone.
  void EndTraining() { training_is_over_ = true; }
  // Gathers all buckets and keeps them until Release, except from Forget to Renew.
  void Hold();
  void Release();

  // How many buckets the step before the last Forget gathered, and how many of these gathers were
  // begun before an operator needed them.
  int64_t gathered() const { return gathered_; }
  int64_t foreseen() const { return foreseen_; }
  // The most bytes of whole buckets that were here or in flight at one time.
  int64_t most_bytes() const { return most_bytes_; }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  // A whole bucket: here, in flight (`work`) or freed.
  struct Whole {
    bool here = false;
    c10::intrusive_ptr<c10d::Work> work;  // null: not in flight
    torch::Tensor input;                  // which `work` reads
  };

  void Gather(const std::vector<size_t>& buckets);
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
  size_t here_ = 0;            // how many of them are here
  std::map<std::pair<size_t, size_t>, size_t> successors_;
  size_t before_last_ = kNone;
  size_t last_ = kNone;
  int held_ = 0;
  bool abandoned_ = false;
  bool training_is_over_ = false;
  int64_t gathers_ = 0;
  int64_t begun_ahead_ = 0;
  int64_t gathered_ = 0;
  int64_t foreseen_ = 0;
  int64_t bytes_ = 0;
  int64_t most_bytes_ = 0;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ZERO_ZERO_GATHERER_H_
