#ifndef DDPRUN_LAUNCHER_CORE_WITNESS_H_
#define DDPRUN_LAUNCHER_CORE_WITNESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/worker_progress.h"

namespace ddprun::launcher {

// The self-report of a Python worker: what a thread beside the training (launcher/marks) has seen
// of it since the last step. Optional and untrusted: a worker may have stored anything.
struct Witness {
  uint64_t collectives = 0;  // begun in torch.distributed's default group, plus one; 0 = not known
  uint64_t looks = 0;        // of the thread at the training, since the last step
  uint64_t places = 0;       // different functions seen, plus growths of memory
  uint64_t jumps = 0;        // looks that saw the backward jump of a loop
  std::string place;  // for people: the functions in the script, innermost first; "" = not known
  std::string user_place;  // the innermost of these that is in no library
  absl::Duration timeout;  // the longest of its process groups; zero = not known
  bool at_locks = false;   // every other Python thread is acquiring a lock
  bool final = false;      // the interpreter ends, so the groups don't change any more
  int64_t watcher = 0;     // thread id of the witness; 0 = not known
  std::vector<rendezvous::GroupProgress> groups;
  std::string inside_group;  // as in WorkerProgress
  std::string inside_call;
};

// Reads the page's text about process groups into `witness`: a line "CALL\tGROUP" with the
// collective that the worker waits in ("\t" = none), then a line "NAME\tSEQUENCE\tSIZE" for each
// group. Reading stops at a malformed line, because a worker may have stored anything.
void ReadGroups(absl::string_view text, Witness* witness);

// Whether the worker is in a loop of one or two functions that calls nothing else and allocates
// nothing. Real work of that form (a loop over numbers) can't be distinguished from it.
inline bool TurnsInCircles(const Witness& witness) {
  constexpr uint64_t kLooksLeast = 6;
  constexpr uint64_t kPlacesMost = 2;
  return witness.looks >= kLooksLeast && witness.places <= kPlacesMost &&
         2 * witness.jumps >= witness.looks;
}

// A sample of one worker, from /proc.
struct WorkerVital {
  bool alive = false;  // false: the other fields mean nothing
  char state = 'S';    // as in proc_pid_stat(5): R, S, D, T, t, Z …
  absl::Duration cpu;  // of the whole process tree
  uint64_t bytes = 0;  // read and written by the whole process tree
  uint64_t turns = 0;  // how often the main thread got a processor
  std::string stack;   // the main thread's in the kernel, or the part of it that can be read
  std::string where;   // for people: the innermost function of `stack`; "" = unknown
  // Two looks have found all threads of the process and its children waiting for its own locks.
  bool sealed = false;
};

// Whether the worker waits for a file. Network file systems wait without state D, and one close(2)
// may be a whole upload. Pure.
bool WaitsForFile(const WorkerVital& vital);

// Whether the worker read, wrote or computed between two samples `interval` apart. Params:
// idle_share: 1/idle_share of the time, or a tick of the kernel's accounting, isn't work. Pure.
bool Acts(const WorkerVital& before, const WorkerVital& after, absl::Duration interval,
          int idle_share);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_WITNESS_H_
