#ifndef DDPRUN_WORKER_TORCH_CONTEXT_PROCESS_CONTEXT_H_
#define DDPRUN_WORKER_TORCH_CONTEXT_PROCESS_CONTEXT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ddprun/context.h"

namespace ddprun::worker {

// The one connection of this process to the other workers, which its Sessions use one after the
// other. Ranks meet once a generation, by store keys that last as long as the generation: a second
// context would find the keys of the first.
//
// Threads of both functions: the one of the Sessions.

// Connects at the first call, and later returns the existing context, in whatever generation that
// is. Errors: Context::Create's. FAILED_PRECONDITION — another Session has the context.
// INVALID_ARGUMENT — the context is of another backend than `options` ask for.
absl::StatusOr<std::shared_ptr<Context>> TakeProcessContext(const ContextOptions& options);

// Releases the context. Called by RunWorker after its body, by a Session that an exception leaves,
// and at exit(3).
void ReleaseProcessContext();

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CONTEXT_PROCESS_CONTEXT_H_
