#ifndef DDPRUN_WORKER_ENV_PARKED_PROGRAM_H_
#define DDPRUN_WORKER_ENV_PARKED_PROGRAM_H_

namespace ddprun::worker {

// Whether this program can be started ahead of its workers (docs/WARM.md): this code is part of the
// program, not of a shared library.
//
// A program that links this function can be a fork server. If the keeper has started it ahead, the
// process stops when its libraries are loaded, which is most of the start of a program with
// LibTorch, and before any code of the program has run. From there it forks one worker after the
// other. Each worker goes on as if it had just been executed: with its own environment, streams and
// session. launcher/keeper/parked_process.h has the keeper's side and the protocol.
bool CanPark();

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_PARKED_PROGRAM_H_
