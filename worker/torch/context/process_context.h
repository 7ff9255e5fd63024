#ifndef DDPRUN_WORKER_TORCH_CONTEXT_PROCESS_CONTEXT_H_
#define DDPRUN_WORKER_TORCH_CONTEXT_PROCESS_CONTEXT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ddprun/context.h"

namespace ddprun::worker {

// The one connection of this process to the other workers, which its Sessions use one after the
// other: ranks meet once a generation, by keys of a store that live as long as that. A second
// context would find the keys of the first.
//
// Threads of both: the one of the Sessions.

// Connects, the first time; else what is connected already, in whatever generation that is.
// Errors: Context::Create's. FAILED_PRECONDITION — another Session has it. INVALID_ARGUMENT — it
// is of another backend than `options` ask for.
absl::StatusOr<std::shared_ptr<Context>> TakeProcessContext(const ContextOptions& options);

// The process is done with it. By itself at exit(3); RunWorker calls it where its body ends, and a
// Session through which an exception travels.
void ReleaseProcessContext();

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CONTEXT_PROCESS_CONTEXT_H_
