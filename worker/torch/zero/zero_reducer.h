#ifndef DDPRUN_WORKER_TORCH_ZERO_ZERO_REDUCER_H_
#define DDPRUN_WORKER_TORCH_ZERO_ZERO_REDUCER_H_

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "worker/torch/optim/storage_on_use.h"
#include "worker/torch/zero/zero_storage.h"

namespace ddprun::worker {

// Placeholders for gradients that are in the ranks' shares: tensors without memory that throw when
// they are used. Without a placeholder grad() would be undefined, and LibTorch's clip_grad_norm_,
// or an optimizer of the program's own, would skip the parameter without a word.
// Threads: those of ZeroReducer.
class TakenGradients : public StorageOwner {
 public:
  // Requires: `parameters` outlive this.
  explicit TakenGradients(const std::vector<ZeroParameter>& parameters);
  ~TakenGradients() override;  // removes the placeholders

  // Puts the parameter's placeholder in the place of its gradient.
  void Put(size_t parameter);
  // Removes the parameter's placeholder, if it is there, because autograd adds to what is there.
  void Remove(size_t parameter);
  bool IsPut(size_t parameter) const;

  // Throws StatusError, FAILED_PRECONDITION.
  void BeforeUse(const std::vector<size_t>& gradients) override;
  void AfterWrite(const std::vector<size_t>& /*gradients*/) override {}
  bool Holds() const override { return false; }
  bool HasNone() const override { return true; }

 private:
  const std::vector<ZeroParameter>& parameters_;
  std::vector<torch::Tensor> placeholders_;  // by parameter
};

}  // namespace ddprun::worker

namespace torch::autograd {
struct FunctionPreHook;
}  // namespace torch::autograd

namespace ddprun::worker {

// Averages gradients for ZeRO-2: as soon as a backward pass has the last gradient of a bucket, the
// bucket is reduced and scattered, so that each rank keeps averages for its own share only.
// c10d::Reducer does this for all-reduce, but can't scatter: its hooks must return whole buckets.
//
// All ranks send buckets in the same order. A full bucket exists from its first gradient to the end
// of its reduction, and few exist at a time.
// Threads: that of the backward pass, and the training loop's between passes.
class ZeroReducer {
 public:
  // Takes the parameters' gradients (GradientIsTaken) while it lives, and leaves TakenGradients.
  // Requires: group and storage outlive it.
  ZeroReducer(c10d::ProcessGroup& group, ZeroStorage& storage, bool find_unused_parameters);
  ~ZeroReducer();
  ZeroReducer(const ZeroReducer&) = delete;
  ZeroReducer& operator=(const ZeroReducer&) = delete;

  // False: gradients stay where autograd puts them, and are averaged with the next pass for which
  // this is true.
  void set_synchronize(bool synchronize) { synchronize_ = synchronize; }
  bool synchronize() const { return synchronize_; }

  // Waits for the buckets of the pass, and adds the averages to the gradients of the pieces. Does
  // nothing if there was no pass.
  // Errors: FAILED_PRECONDITION — a parameter got no gradient; the text names it. Throws as c10d.
  absl::Status Finish();

  // Drops the gradients of the current pass and of earlier ones.
  void Reset();

  int64_t buckets_sent() const { return static_cast<int64_t>(next_to_send_); }
  int64_t most_bytes() const { return most_bytes_; }
  absl::Duration reduction() const { return reduction_; }
  absl::Duration waiting() const { return waiting_; }

 private:
  struct Hook {
    decltype(torch::autograd::Edge::function) node;
    uintptr_t key = 0;
    const torch::autograd::FunctionPreHook* before = nullptr;
  };
  // The state of a bucket in this pass.
  struct Transfer {
    torch::Tensor full;    // [world_size * share]; from its first gradient to the reduction's end
    torch::Tensor output;  // [share]
    bool adds = false;     // to the averages of earlier passes
    size_t missing = 0;    // how many of its gradients
    c10::intrusive_ptr<c10d::Work> work;
  };

  // Called by autograd for each gradient. Throws as c10d, or with Finish's errors.
  void OnGradient(size_t parameter);
  void CheckFirst(size_t parameter);
  void PutIntoBucket(size_t parameter);
  void Prepare(size_t bucket);
  void SendComplete();
  void Send(size_t bucket);
  void FinishOldest();
  absl::Status SendTheRest();
  void ShareGradients(const torch::Tensor& used);
  void BeginPass();

  c10d::ProcessGroup& group_;
  ZeroStorage& storage_;
  const bool scatters_;  // the backend knows how to reduce into shares
  const bool find_unused_parameters_;
  TakenGradients taken_;
  std::vector<Hook> hooks_;                          // by parameter
  std::vector<std::pair<size_t, ZeroSlot>> places_;  // by parameter: bucket, and place in it
  bool synchronize_ = true;
  std::vector<bool> arrived_;  // by parameter
  size_t arrived_count_ = 0;
  std::vector<Transfer> transfers_;  // by bucket
  size_t next_to_send_ = 0;
  size_t next_to_finish_ = 0;
  int64_t bytes_ = 0;  // of the full buckets that exist now
  int64_t most_bytes_ = 0;
  Instant started_;  // when the first bucket was sent
  absl::Duration reduction_;
  absl::Duration waiting_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ZERO_ZERO_REDUCER_H_
