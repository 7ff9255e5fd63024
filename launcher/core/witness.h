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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_WITNESS_H_
