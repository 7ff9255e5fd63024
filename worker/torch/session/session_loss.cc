// Losses of a session that aren't finite, and the rank that had the first one.
//
// By the step after it the average of the gradients has brought a NaN to the parameters of all
// ranks, and the loss is looked at later still. So the rank with the first such loss notes it at
// once in the generation's store, where the others find it when they fail.
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ddprun/clip_grad_norm.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {
namespace {

// A store that is gone is no error: the note is for the error text of another one.
void WithNotes(Context& context, const std::function<void(c10d::Store& store)>& use) {
  if (context.world_size() == 1) return;
  worker::CatchExceptions([&] {
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

absl::Status Session::Implementation::CheckStep() {
  // A step that was left out because of an overflow may have an infinite loss.
  if (!loss.defined() || !stepped) return absl::OkStatus();
  const absl::Status checked = CheckLoss(loss, *model);
  if (checked.ok()) return checked;
  const std::string first = NotedLoss(*context, absl::StrCat("not_finite/", session_number));
  return {checked.code(),
          absl::StrCat(checked.message(), " (in step ", progress.step, " of rank ", context->rank(),
                       first.empty() ? "" : "; the first was ", first, ")")};
}

void Session::Implementation::NoteLoss() {
  if (!loss.defined() || !stepped || !loss.is_cpu()) return;
  const bool is_finite = std::isfinite(loss.item<double>());
  if (is_finite == (not_finite_since == 0)) return;
  not_finite_since = is_finite ? 0 : progress.step;
  const std::string key = absl::StrCat("not_finite/", session_number);
  const std::string owner = absl::StrCat("rank ", context->rank(), "'s, in step ");
  if (!is_finite) {  // an earlier note stays
    const std::string note = absl::StrCat(owner, progress.step);
    WithNotes(*context, [&](c10d::Store& store) {
      store.compareSet(key, std::vector<uint8_t>(), std::vector<uint8_t>(note.begin(), note.end()));
    });
  } else if (absl::StartsWith(NotedLoss(*context, key), owner)) {
    WithNotes(*context, [&](c10d::Store& store) { store.deleteKey(key); });
  }
}

}  // namespace ddprun
