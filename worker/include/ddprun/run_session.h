#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_SESSION_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_SESSION_H_

#include <functional>

#include "ddprun/session_options.h"

namespace ddprun {

class Session;

// A training program's main(): reads the command line and the file of options that --config names,
// meets the other workers, and trains.
// Returns the exit code: 0; 1 = an error; 2 = options that can't be understood. Errors are also
// written to the error file (ddprun/run_worker.h).
int RunSession(int argc, char** argv, SessionOptions options,
               const std::function<void(Session& session)>& train);

// RunSession for a program that makes several Sessions itself, one after the other, from the
// options that it gets: the folds of a cross-validation, or a pretraining and what follows.
//
//   RunSessions(argc, argv, {.name = "kfold"}, [](const SessionOptions& options) {
//     for (int fold = 0; fold < 5; ++fold) {
//       Session session(options.Part(absl::StrCat("fold", fold)));
//       ...
//     }
//   });
//
// A restarted job, and a worker that takes a killed one's place, go through the earlier Sessions
// first, and read what these have saved instead of training twice. So keep checkpoints: otherwise
// the new worker trains those Sessions anew, alone, while the others wait. Between two Sessions
// torch's generator has the seed, on all ranks.
int RunSessions(int argc, char** argv, SessionOptions options,
                const std::function<void(const SessionOptions& options)>& program);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_SESSION_H_
