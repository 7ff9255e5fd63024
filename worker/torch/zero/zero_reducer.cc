#include "worker/torch/zero/zero_reducer.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/utils.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ddprun/status_error.h"
#include "worker/torch/collectives/single_tensor_collectives.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/storage_on_use.h"

// How gradients are averaged while the backward pass still runs.
//
// Goal: a rank keeps averages for its own share only, and a full bucket of gradients exists no
// longer than it must. Each parameter's gradient goes into its bucket as soon as autograd has it
// (PutIntoBucket) and is released, with a placeholder in its place (TakenGradients); the bucket
// leaves when no gradient is missing (Send); its memory is freed when the reduction is done
// (FinishOldest).
//
// Invariant: buckets are sent in their order 0, 1, 2, …, whichever is complete first, because
// collectives must be begun in one order on all ranks, and gradients may come in another order on
// each rank. 0 <= next_to_finish_ <= next_to_send_ <= number of buckets; the buckets between the
// two counters are in flight.
//
// Example: buckets {p5 p4}, {p3 p2}, {p1 p0}; p5 and p4 are slower than p3 and p2.
//
//   gradient of   missing   sent
//   p5            1 2 2
//   p3            1 1 2
//   p2            1 0 2     (bucket 1 is complete and waits for bucket 0)
//   p4            0 0 2     0, 1
//   p1, p0        0 0 0     2
//
// A pass isn't known to be over by a callback at its end: CheckpointActivations runs inner backward
// passes, each with an end. It is over when its averages are asked for (Finish), or when a
// parameter gets a second gradient although all have had one (CheckFirst).
//
// Averages of several passes add up in the share. `adds` is decided when a bucket is sent: without
// earlier averages the reduction writes straight into the bucket's gradient, otherwise into memory
// of its own that is added afterwards.

namespace ddprun::worker {
namespace {

using torch::autograd::variable_list;

// Whether the backend can send a rank its share alone. Gloo and the hierarchical backend implement
// reduce-scatter as an all-reduce of a copy; an all-reduce of the bucket itself saves the copy.
bool Scatters(c10d::ProcessGroup& group) {
  const std::string name = group.getDefaultBackend()->getBackendName();  // or "checked gloo"
  return !absl::StrContains(name, "gloo") && !absl::StrContains(name, "hierarchical");
}

// One bucket that is filled, one in flight, one to spare. More would cost memory and save no time:
// with three the connection is busy. Only a bucket that was sent can be waited for, so more exist
// if gradients reach a fourth bucket before the first one can be sent.
constexpr size_t kFullBucketsMax = 3;

// Runs before autograd adds a gradient to the one that is there.
class BeforeGradient : public torch::autograd::FunctionPreHook {
 public:
  BeforeGradient(TakenGradients& taken, size_t parameter) : taken_(taken), parameter_(parameter) {}
  variable_list operator()(const variable_list& gradients) override {
    taken_.Remove(parameter_);
    return gradients;
  }

 private:
  TakenGradients& taken_;
  const size_t parameter_;
};

[[noreturn]] void Throw(const absl::Status& status) { std::rethrow_exception(ToException(status)); }

}  // namespace

ZeroReducer::ZeroReducer(c10d::ProcessGroup& group, ZeroStorage& storage,
                         bool find_unused_parameters)
    : group_(group),
      storage_(storage),
      scatters_(Scatters(group)),
      find_unused_parameters_(find_unused_parameters),
      taken_(storage.parameters()),
      places_(storage.parameters().size()) {
  for (size_t bucket = 0; bucket < storage.buckets().size(); ++bucket) {
    for (const ZeroSlot& slot : storage.buckets()[bucket].layout.slots) {
      places_[slot.parameter] = {bucket, slot};
    }
  }
  BeginPass();
  for (size_t i = 0; i < places_.size(); ++i) {
    Hook hook;
    hook.node = torch::autograd::impl::grad_accumulator(storage.parameters()[i].tensor);
    hook.key = hook.node->add_post_hook(std::make_unique<GradientTaker>(
        [this, i](const variable_list& outputs, const variable_list& /*inputs*/) {
          OnGradient(i);
          return outputs;
        }));
    auto before = std::make_unique<BeforeGradient>(taken_, i);
    hook.before = before.get();
    hook.node->add_pre_hook(std::move(before));
    hooks_.push_back(std::move(hook));
  }
}

ZeroReducer::~ZeroReducer() {
  for (Hook& hook : hooks_) {
    hook.node->del_post_hook(hook.key);
    std::erase_if(hook.node->pre_hooks(),
                  [&hook](const auto& one) { return one.get() == hook.before; });
  }
}

void ZeroReducer::BeginPass() {
  arrived_.assign(places_.size(), false);
  arrived_count_ = 0;
  next_to_send_ = next_to_finish_ = 0;
  transfers_.assign(storage_.buckets().size(), Transfer());
  for (size_t bucket = 0; bucket < transfers_.size(); ++bucket) {
    transfers_[bucket].missing = storage_.buckets()[bucket].layout.slots.size();
  }
  bytes_ = 0;
}

void ZeroReducer::OnGradient(size_t parameter) {
  if (!synchronize_) return;
  const torch::NoGradGuard no_grad;
  CheckFirst(parameter);
  PutIntoBucket(parameter);
  SendComplete();
}

// A second gradient of a parameter begins another pass, if this pass is complete. Otherwise a
// parameter of this pass has no gradient and nobody can know whether one is to come.
void ZeroReducer::CheckFirst(size_t parameter) {
  if (!arrived_[parameter]) return;
  if (!find_unused_parameters_ && arrived_count_ == arrived_.size()) {
    const absl::Status status = Finish();
    if (!status.ok()) Throw(status);
    return;
  }
  const std::string again =
      absl::StrCat("ZeroOptimizer: parameter '", storage_.parameters()[parameter].name,
                   "' got a second gradient before ");
  if (find_unused_parameters_) {
    Throw(absl::FailedPreconditionError(
        absl::StrCat(again,
                     "FinishBackward; with find_unused_parameters call that, or step, after "
                     "each backward pass outside of NoSync")));
  }
  const auto missing = std::find(arrived_.begin(), arrived_.end(), false) - arrived_.begin();
  Throw(absl::FailedPreconditionError(absl::StrCat(
      again, "'", storage_.parameters()[static_cast<size_t>(missing)].name,
      "' got its first one: either that one is unused (set find_unused_parameters), or a module is "
      "used twice by CheckpointActivations, which ZeRO-2 can't reduce")));
}

void ZeroReducer::PutIntoBucket(size_t parameter) {
  const auto& [bucket, slot] = places_[parameter];
  torch::Tensor tensor = storage_.parameters()[parameter].tensor;
  torch::Tensor& gradient = tensor.mutable_grad();
  TORCH_CHECK(!gradient.is_sparse(), "ZeroOptimizer: the gradient of '",
              storage_.parameters()[parameter].name, "' is sparse, which ZeRO-2 can't reduce");
  Prepare(bucket);
  torch::Tensor place =
      transfers_[bucket].full.narrow(0, slot.begin, slot.length).view(tensor.sizes());
  // Divided before the sum, as in c10d::Reducer, so that sums of float16 don't overflow.
  const torch::Tensor factor =
      c10::scalar_to_tensor(1.0 / group_.getSize()).to(gradient.scalar_type());
  at::mul_out(place, gradient, factor);
  taken_.Put(parameter);
  arrived_[parameter] = true;
  ++arrived_count_;
  --transfers_[bucket].missing;
}

void ZeroReducer::Prepare(size_t bucket) {
  Transfer& transfer = transfers_[bucket];
  if (transfer.full.defined()) return;
  const auto full_buckets = [this] {
    return static_cast<size_t>(std::count_if(transfers_.begin(), transfers_.end(),
                                             [](const Transfer& t) { return t.full.defined(); }));
  };
  while (next_to_finish_ < next_to_send_ && full_buckets() >= kFullBucketsMax) FinishOldest();
  const ZeroBucket& target = storage_.buckets()[bucket];
  transfer.full = at::empty_like(target.parameters);
  transfer.full.slice(0, target.layout.length).zero_();
  bytes_ += static_cast<int64_t>(transfer.full.nbytes());
  most_bytes_ = std::max(most_bytes_, bytes_);
}

void ZeroReducer::SendComplete() {
  while (next_to_send_ < transfers_.size() && transfers_[next_to_send_].missing == 0) {
    Send(next_to_send_);
  }
}

void ZeroReducer::Send(size_t bucket) {
  if (bucket == 0) started_ = MonotonicNow();
  Transfer& transfer = transfers_[bucket];
  ZeroBucket& target = storage_.buckets()[bucket];
  const auto& pieces = storage_.pieces();
  transfer.adds = std::any_of(pieces.begin(), pieces.end(), [&](const ZeroPieceTensor& piece) {
    return piece.piece.bucket == bucket && piece.tensor.grad().defined();
  });
  const bool direct = !transfer.adds && target.updated.device() == target.share.device();
  transfer.output = direct ? ZeroStorage::GradientOf(target) : at::empty_like(target.share);
  if (scatters_) {
    transfer.work = ReduceScatterTensor(group_, transfer.output, transfer.full);
  } else {
    std::vector<torch::Tensor> whole = {transfer.full};
    transfer.work = group_.allreduce(whole);
  }
  ++next_to_send_;
}

void ZeroReducer::FinishOldest() {
  Transfer& transfer = transfers_[next_to_finish_];
  ZeroBucket& bucket = storage_.buckets()[next_to_finish_];
  transfer.work->wait();
  if (!scatters_) {
    const int64_t share = bucket.layout.share;
    transfer.output.copy_(transfer.full.narrow(0, share * storage_.rank(), share));
  }
  if (transfer.adds) {
    bucket.gradient.add_(transfer.output.to(bucket.gradient.device()));
  } else if (!transfer.output.is_same(bucket.gradient)) {
    ZeroStorage::GradientOf(bucket).copy_(transfer.output);
  }
  bytes_ -= static_cast<int64_t>(transfer.full.nbytes());
  transfer = Transfer();
  ++next_to_finish_;
}

// Completes the buckets of parameters that this pass didn't use: with the gradient that an earlier
// pass inside NoSync has left, or with zeros, as the other ranks may have a gradient.
absl::Status ZeroReducer::SendTheRest() {
  for (size_t i = 0; i < arrived_.size(); ++i) {
    if (arrived_[i]) continue;
    const ZeroParameter& parameter = storage_.parameters()[i];
    if (!find_unused_parameters_) {
      const auto others =
          std::count(arrived_.begin() + static_cast<ptrdiff_t>(i) + 1, arrived_.end(), false);
      return UnusedParameters(parameter.name, static_cast<size_t>(others));
    }
    if (parameter.tensor.grad().defined() && !taken_.IsPut(i)) {
      PutIntoBucket(i);
      continue;
    }
    const auto& [bucket, slot] = places_[i];
    Prepare(bucket);
    transfers_[bucket].full.narrow(0, slot.begin, slot.length).zero_();
    --transfers_[bucket].missing;
  }
  SendComplete();
  return absl::OkStatus();
}

// Params: used: by parameter, whether any rank had a gradient; undefined = all are used. Without
// this distinction AdamW would decay the weights of unused parameters, which it skips on one GPU.
void ZeroReducer::ShareGradients(const torch::Tensor& used) {
  for (ZeroPieceTensor& piece : storage_.pieces()) {
    if (used.defined()) {
      const auto parameter = static_cast<int64_t>(piece.piece.parameter);
      if (used[parameter].item<uint8_t>() == 0) continue;
    }
    piece.tensor.mutable_grad() =
        ZeroStorage::PartOf(piece.piece, storage_.buckets()[piece.piece.bucket].gradient);
  }
}

absl::Status ZeroReducer::Finish() {
  if (arrived_count_ == 0) return absl::OkStatus();
  const torch::NoGradGuard no_grad;
  const Instant begin = MonotonicNow();
  DDPRUN_RETURN_IF_ERROR(SendTheRest());
  torch::Tensor used;
  if (find_unused_parameters_) {
    used = at::zeros({static_cast<int64_t>(arrived_.size())}, at::kByte);
    for (size_t i = 0; i < arrived_.size(); ++i) {
      if (arrived_[i]) used[static_cast<int64_t>(i)] = 1;
    }
    used = used.to(storage_.buckets()[0].parameters.device());
    std::vector<torch::Tensor> tensors = {used};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    group_.allreduce(tensors, options)->wait();
    used = used.cpu();
  }
  while (next_to_finish_ < transfers_.size()) FinishOldest();
  ShareGradients(used);
  BeginPass();
  waiting_ = MonotonicNow() - begin;
  reduction_ = MonotonicNow() - started_;
  return absl::OkStatus();
}

void ZeroReducer::Reset() {
  for (; next_to_finish_ < next_to_send_; ++next_to_finish_) {
    transfers_[next_to_finish_].work->wait();
  }
  BeginPass();
  for (ZeroPieceTensor& piece : storage_.pieces()) piece.tensor.mutable_grad().reset();
}

TakenGradients::TakenGradients(const std::vector<ZeroParameter>& parameters)
    : parameters_(parameters) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    placeholders_.push_back(MarkedWithoutMemory(parameters_[i].tensor));
    Own(*placeholders_.back().storage().unsafeGetStorageImpl(), *this, i);
  }
}

TakenGradients::~TakenGradients() {
  for (size_t i = 0; i < placeholders_.size(); ++i) {
    Remove(i);
    Disown(*placeholders_[i].storage().unsafeGetStorageImpl());
  }
}

void TakenGradients::Put(size_t parameter) {
  parameters_[parameter].tensor.mutable_grad() = placeholders_[parameter];
}

void TakenGradients::Remove(size_t parameter) {
  if (IsPut(parameter)) parameters_[parameter].tensor.mutable_grad().reset();
}

bool TakenGradients::IsPut(size_t parameter) const {
  const torch::Tensor& gradient = parameters_[parameter].tensor.grad();  // or a detach()ed handle
  return gradient.defined() && IsMarked(gradient) && gradient.is_alias_of(placeholders_[parameter]);
}

void TakenGradients::BeforeUse(const std::vector<size_t>& gradients) {
  throw StatusError(absl::FailedPreconditionError(absl::StrCat(
      "the gradient of '", parameters_[gradients.front()].name,
      "' is in the shares of a ZeroOptimizer (stage 2 or 3), so that no rank can read or clip it "
      "alone: a Session clips by --max_grad_norm, other programs by ZeroOptimizer::ClipGradNorm")));
}

}  // namespace ddprun::worker
