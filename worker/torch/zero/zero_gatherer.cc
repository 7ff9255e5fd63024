#include "worker/torch/zero/zero_gatherer.h"

#include <ATen/ops/empty.h>
#include <torch/utils.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/torch/collectives/single_tensor_collectives.h"
#include "worker/torch/errors/exception_status.h"

// When buckets of parameters come and go.
//
// Goal: a rank holds two whole buckets at most (more only for an operator that uses more): the one
// in use and the next one, which arrives while operators use the first. LibTorch's modules have no
// hooks and their order isn't known, so the next bucket is a guess: the one that came after the
// same *two* buckets the last time. One bucket alone doesn't say enough: after B comes C in a
// forward pass, and A in a backward pass.
//
// Invariant: a bucket is freed, in flight (`work`) or here. All ranks call their operators on
// parameters in the same order, so all have the same table, make the same guesses and begin the
// same collectives. A wrong guess costs a gather that nobody needed, and nothing else.
//
// Example: buckets A, B, C; forward A B C, backward C B A.
//
//   use   before it  step 1 records   step 2 finds, and begins beside the use
//   A     - -        (- -) -> A       (- A) -> B
//   B     - A        (- A) -> B       (A B) -> C
//   C     A B        (A B) -> C       (B C) -> B
//   C     here already: nothing to do
//   B     B C        (B C) -> B       (C B) -> A
//   A     C B        (C B) -> A       (B A): unknown, the pass is over
//
// From step 2 on, four of five gathers are begun ahead. The first one of a step can't be: the
// optimizer has just changed the shares (Forget, which keeps the table).

namespace ddprun::worker {
namespace {

c10::StorageImpl& StorageOf(const torch::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

// Takes the memory out of the storage but keeps its size, so that neither views of the tensor nor
// the copies of them that autograd saves notice.
void FreeMemory(const torch::Tensor& flat) {
  StorageOf(flat).set_data_ptr_noswap(at::DataPtr(nullptr, flat.device()));
}

void GiveMemory(const torch::Tensor& flat) {
  const torch::Tensor fresh = at::empty(flat.sizes(), flat.options());
  StorageOf(flat).set_data_ptr_noswap(
      StorageOf(fresh).set_data_ptr(at::DataPtr(nullptr, flat.device())));
}

}  // namespace

ZeroGatherer::ZeroGatherer(c10d::ProcessGroup& group, ZeroStorage& storage)
    : group_(group), storage_(storage), wholes_(storage.buckets().size()) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < wholes_.size(); ++i) {
    const ZeroBucket& bucket = storage_.buckets()[i];
    for (const ZeroSlot& slot : bucket.layout.slots) {
      torch::Tensor parameter = storage_.parameters()[slot.parameter].tensor;
      parameter.set_data(
          Marked(bucket.parameters.narrow(0, slot.begin, slot.length).view(parameter.sizes())));
    }
    Own(StorageOf(bucket.parameters), *this, i);
    FreeMemory(bucket.parameters);
  }
}

ZeroGatherer::~ZeroGatherer() {
  for (size_t i = 0; i < wholes_.size(); ++i) {
    const torch::Tensor& whole = storage_.buckets()[i].parameters;
    Disown(StorageOf(whole));
    // A gather that a peer's death left in flight may still write there; its memory goes with it.
    if (wholes_[i].work == nullptr) FreeMemory(whole);
  }
}

void ZeroGatherer::BeforeUse(const std::vector<size_t>& buckets) {
  const bool all_here =
      std::all_of(buckets.begin(), buckets.end(), [this](size_t i) { return wholes_[i].here; });
  // Usually this bucket and the next one. After an operator that used more, the rest is freed.
  if (held_ > 0 || (all_here && here_ <= buckets.size() + 1)) return;
  const torch::NoGradGuard no_grad;
  FreeAllBut(buckets);
  if (all_here) return;
  try {
    Gather(buckets);
  } catch (...) {
    if (!training_is_over_) throw;
    const absl::Status status = StatusFromCurrentException();
    const std::string text =
        absl::StrCat(status.message(), "; this rank used a parameter that ", kInShares);
    std::rethrow_exception(ToException(absl::Status(status.code(), text)));
  }
}

void ZeroGatherer::Gather(const std::vector<size_t>& buckets) {
  for (const size_t bucket : buckets) {
    if (wholes_[bucket].here) continue;
    if (wholes_[bucket].work != nullptr) ++begun_ahead_;
    ++gathers_;
    Remember(bucket);
  }
  for (const size_t bucket : buckets) Begin(bucket);
  for (const size_t bucket : buckets) Await(bucket);
  const size_t next = Next();
  if (next != kNone) Begin(next);
}

void ZeroGatherer::AfterWrite(const std::vector<size_t>& buckets) {
  const torch::NoGradGuard no_grad;
  for (const size_t bucket : buckets) ZeroStorage::RenewCopy(storage_.buckets()[bucket]);
}

void ZeroGatherer::Begin(size_t bucket) {
  Whole& whole = wholes_[bucket];
  if (whole.here || whole.work != nullptr) return;
  ZeroBucket& place = storage_.buckets()[bucket];
  GiveMemory(place.parameters);
  if (abandoned_) {
    place.parameters.zero_();
    whole.here = true;
    ++here_;
    return;
  }
  whole.input = place.updated.to(place.parameters.device());
  whole.work = AllGatherTensor(group_, place.parameters, whole.input);
  bytes_ += static_cast<int64_t>(place.parameters.nbytes());
  most_bytes_ = std::max(most_bytes_, bytes_);
}

void ZeroGatherer::Await(size_t bucket) {
  Whole& whole = wholes_[bucket];
  if (whole.work == nullptr) return;
  try {
    whole.work->wait();
  } catch (...) {
    if (!abandoned_) throw;
  }
  whole = {.here = true, .work = nullptr, .input = torch::Tensor()};
  ++here_;
}

void ZeroGatherer::Free(size_t bucket) {
  Await(bucket);
  if (!wholes_[bucket].here) return;
  wholes_[bucket].here = false;
  --here_;
  const torch::Tensor& whole = storage_.buckets()[bucket].parameters;
  FreeMemory(whole);
  bytes_ -= static_cast<int64_t>(whole.nbytes());
}

void ZeroGatherer::FreeAllBut(const std::vector<size_t>& kept) {
  for (size_t i = 0; i < wholes_.size(); ++i) {
    if (std::find(kept.begin(), kept.end(), i) == kept.end()) Free(i);
  }
}

size_t ZeroGatherer::Next() const {
  const auto found = successors_.find({before_last_, last_});
  return found == successors_.end() ? kNone : found->second;
}

void ZeroGatherer::Remember(size_t bucket) {
  successors_[{before_last_, last_}] = bucket;
  before_last_ = last_;
  last_ = bucket;
}

void ZeroGatherer::GatherAll() {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < wholes_.size(); ++i) Begin(i);
  for (size_t i = 0; i < wholes_.size(); ++i) Await(i);
}

void ZeroGatherer::Forget() {
  FreeAllBut({});
  before_last_ = last_ = kNone;
  gathered_ = std::exchange(gathers_, 0);
  foreseen_ = std::exchange(begun_ahead_, 0);
}

void ZeroGatherer::Renew() {
  if (held_ > 0) GatherAll();
}

void ZeroGatherer::Hold() {
  if (held_++ == 0) GatherAll();
}

void ZeroGatherer::Release() {
  if (--held_ == 0) FreeAllBut({});
}

}  // namespace ddprun::worker
