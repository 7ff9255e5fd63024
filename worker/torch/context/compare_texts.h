#ifndef DDPRUN_WORKER_TORCH_CONTEXT_COMPARE_TEXTS_H_
#define DDPRUN_WORKER_TORCH_CONTEXT_COMPARE_TEXTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddprun/context.h"

namespace ddprun::worker {

// Compares lists of texts over all ranks, through the store; all ranks call it. Params: what,
// advice: for the error text, as ModelCheckPlan's.
// Errors: INVALID_ARGUMENT, on every rank — a rank's list differs from rank 0's; the text names the
// rank and the first difference. UNAVAILABLE — a peer is gone.
absl::Status CompareTexts(Context& context, const std::vector<std::string>& texts,
                          const std::string& what, const std::string& advice);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CONTEXT_COMPARE_TEXTS_H_
