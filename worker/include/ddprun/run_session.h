#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_SESSION_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_SESSION_H_

#include <functional>

#include "ddprun/session_options.h"

namespace ddprun {

class Session;

// A training program's main(): reads the command line and the file of options that it names, meets
// the other workers, and trains.
// Returns: the exit code: 0; 1 = an error; 2 = options that can't be understood. Errors are also in
// the error file (ddprun/run_worker.h).
int RunSession(int argc, char** argv, SessionOptions options,
               const std::function<void(Session& session)>& train);

// The same for a program that makes its Sessions itself, one after the other, out of the options
// that it is handed: the folds of a k-fold, a pretraining and what follows.
//
//   RunSessions(argc, argv, {.name = "kfold"}, [](const SessionOptions& options) {
//     for (int fold = 0; fold < 5; ++fold) {
//       Session session(options.Part(absl::StrCat("fold", fold)));
//       ...
//     }
//   });
//
// A job that is started again, and a worker that takes a killed one's place, come by the earlier
// Sessions first: what these have saved is read, and nothing is trained twice; so keep checkpoints,
// or they are trained anew (by the new worker alone, while the others wait). Between two Sessions
// torch's generator has the seed, on all ranks.
int RunSessions(int argc, char** argv, SessionOptions options,
                const std::function<void(const SessionOptions& options)>& program);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_SESSION_H_
