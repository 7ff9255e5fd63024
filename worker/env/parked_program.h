#ifndef DDPRUN_WORKER_ENV_PARKED_PROGRAM_H_
#define DDPRUN_WORKER_ENV_PARKED_PROGRAM_H_

namespace ddprun::worker {

// Whether this program can be started ahead of the worker that it will be (docs/WARM.md): this code
// is part of it, and not of a library that it loads when it already runs.
//
// Who links this function has the rest, too. Before anything of the program has run, but after its
// libraries were loaded, which takes most of the start of a program with LibTorch, a process that
// its keeper has parked waits, and becomes one worker after the other by fork(2). Each goes on from
// there as if it had just been executed: with its own environment, arguments, streams and session.
// The keeper's side, and what goes over the wire, is in launcher/keeper/parked_process.h.
bool CanPark();

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_PARKED_PROGRAM_H_
