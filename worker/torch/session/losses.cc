#include "worker/torch/session/losses.h"

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ddprun/clip_grad_norm.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"

// Losses that aren't finite, and the rank that had the first one:
//
// By the step after it the average of the gradients has brought a NaN to the parameters of all
// ranks, and the loss is looked at later still. So the rank with the first such loss notes it at
// once in the generation's store, where the others find it when they fail.

namespace ddprun::worker {
namespace {

// A store that is gone is no error: the note is for the error text of another one.
void WithNotes(Context& context, const std::function<void(c10d::Store& store)>& use) {
  if (context.world_size() == 1) return;
  CatchExceptions([&] {
    use(*context.implementation().store);
    return absl::OkStatus();
  }).IgnoreError();
}

// "rank 1's, in step 6"; "" = no rank has noted one.
std::string NotedLoss(Context& context, const std::string& key) {
  std::string noted;
  WithNotes(context, [&](c10d::Store& store) {
    if (store.check({key})) noted = store.get_to_str(key);
  });
  return noted;
}

}  // namespace

Losses::Losses(uint64_t session) : key_(absl::StrCat("not_finite/", session)) {}

void Losses::Add(uint64_t epoch, int64_t step, const torch::Tensor& loss, int64_t samples) {
  if (epoch_ != epoch || step <= step_) {
    sum_ = torch::Tensor();
    samples_ = 0;
  }
  epoch_ = epoch;
  step_ = step;
  if (!loss.defined() || samples == 0) return;
  // Not read here, because every step would have to wait for a GPU.
  const torch::Tensor of_step = loss.detach().to(torch::kDouble).reshape({}) * samples;
  sum_ = sum_.defined() ? sum_ + of_step : of_step;
  samples_ += samples;
}

absl::StatusOr<std::optional<Losses::Mean>> Losses::MeanOfEpoch(Context& context) const {
  torch::Tensor sums = torch::zeros({2}, torch::kDouble);
  if (sum_.defined()) sums[0] = sum_.cpu();
  sums[1] = samples_;
  sums = sums.to(context.device());
  DDPRUN_RETURN_IF_ERROR(context.AllReduceSum(sums));
  const double samples = sums[1].item<double>();
  if (samples == 0) return std::nullopt;
  return Mean{.loss = sums[0].item<double>() / samples, .samples = static_cast<int64_t>(samples)};
}

absl::Status Losses::Check(Context& context, int64_t step, const torch::Tensor& loss,
                           torch::nn::Module& model) const {
  if (!loss.defined()) return absl::OkStatus();
  const absl::Status checked = CheckLoss(loss, model);
  if (checked.ok()) return checked;
  const std::string first = NotedLoss(context, key_);
  return {checked.code(),
          absl::StrCat(checked.message(), " (in step ", step, " of rank ", context.rank(),
                       first.empty() ? "" : "; the first was ", first, ")")};
}

void Losses::Note(Context& context, int64_t step, const torch::Tensor& loss) {
  if (!loss.defined() || !loss.is_cpu()) return;
  const bool is_finite = std::isfinite(loss.item<double>());
  if (is_finite == (not_finite_since_ == 0)) return;
  not_finite_since_ = is_finite ? 0 : step;
  const std::string owner = absl::StrCat("rank ", context.rank(), "'s, in step ");
  if (!is_finite) {  // an earlier note stays
    const std::string note = absl::StrCat(owner, step);
    WithNotes(context, [&](c10d::Store& store) {
      store.compareSet(key_, std::vector<uint8_t>(),
                       std::vector<uint8_t>(note.begin(), note.end()));
    });
  } else if (absl::StartsWith(NotedLoss(context, key_), owner)) {
    WithNotes(context, [&](c10d::Store& store) { store.deleteKey(key_); });
  }
}

}  // namespace ddprun::worker
