#include "worker/torch/context/compare_texts.h"

#include "absl/strings/str_cat.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/gathering_store.h"
#include "worker/torch/store/meeting.h"

namespace ddprun::worker {

absl::Status CompareTexts(Context& context, const std::vector<std::string>& texts,
                          const std::string& what, const std::string& advice) {
  return CatchExceptions([&] {
    Context::Implementation& own = context.implementation();
    StorePart store(absl::StrCat("models/", own.models_created++), own.store);
    return CompareModels(store,
                         {.rank = context.rank(),
                          .world_size = context.world_size(),
                          .timeout = own.plan.start_timeout,
                          .what = what,
                          .advice = advice},
                         texts);
  });
}

}  // namespace ddprun::worker
