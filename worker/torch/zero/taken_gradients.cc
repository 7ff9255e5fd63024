#include "worker/torch/zero/taken_gradients.h"

#include "absl/strings/str_cat.h"
#include "ddprun/status_error.h"

namespace ddprun::worker {

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
