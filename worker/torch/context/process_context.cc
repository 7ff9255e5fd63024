#include "worker/torch/context/process_context.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/torch/context/context_implementation.h"

namespace ddprun::worker {
namespace {

// The context of this process. A child that the program forks has none, and never frees its copy:
// the threads of that copy are the parent's, and the progress page would say that the parent is
// done.
std::shared_ptr<Context>& Kept() {
  struct OfProcess {
    pid_t owner;
    std::shared_ptr<Context> context;
  };
  static OfProcess* kept = nullptr;
  if (kept == nullptr || kept->owner != getpid()) {
    kept = new OfProcess{.owner = getpid(), .context = nullptr};
  }
  return kept->context;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Context>> TakeProcessContext(const ContextOptions& options) {
  std::shared_ptr<Context>& kept = Kept();
  if (kept == nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(kept, Context::Create(options));
    // Runs before LibTorch's own objects are destroyed, which were made earlier.
    [[maybe_unused]] static const int registered = std::atexit(&ReleaseProcessContext);
    return kept;
  }
  if (kept.use_count() > 1) {
    return absl::FailedPreconditionError(
        "a Session was made while another one of this process is there: end that one first, or "
        "train several models in one (Session::Add)");
  }
  const std::string& backend = kept->implementation().options.backend;
  if (backend != options.backend) {
    return absl::InvalidArgumentError(
        absl::StrCat("this Session asks for the backend '", options.backend,
                     "', and an earlier one of this process for '", backend,
                     "': they share one connection; give both the same"));
  }
  return kept;
}

void ReleaseProcessContext() { Kept().reset(); }

}  // namespace ddprun::worker
