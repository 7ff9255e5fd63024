#ifndef DDPRUN_LAUNCHER_CORE_WITNESS_H_
#define DDPRUN_LAUNCHER_CORE_WITNESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// What a thread of a Python worker saw of the training beside it since the last step
// (launcher/marks). None of it is needed, and all of it may be wrong: it is the worker's word.
struct Witness {
  uint64_t collectives = 0;  // begun in torch.distributed's default group, and one; 0 = not known
  uint64_t looks = 0;        // since the last step
  uint64_t places = 0;       // functions that they found it in, and growths of its memory
  uint64_t jumps = 0;        // of them in the jump of a loop
  std::string place;       // for people: where it is in the script, innermost first; "" = not known
  std::string user_place;  // the innermost of these places that is in no library
  absl::Duration timeout;  // the longest of its groups; zero = not known
  bool at_locks = false;   // each thread of Python's but the witness is acquiring a lock
  bool final = false;      // the interpreter ends: the groups stay as they are
  int64_t watcher = 0;     // thread id of the witness; 0 = not known
  std::vector<rendezvous::GroupProgress> groups;
  std::string inside_group;  // as in WorkerProgress
  std::string inside_call;
};

// Reads the page's text about process groups into `witness`: a line "CALL\tGROUP" with the
// collective that is waited in ("\t" = none), then a line "NAME\tSEQUENCE\tSIZE" for each group. A
// line that isn't of that form ends it: a worker may have stored anything.
void ReadGroups(absl::string_view text, Witness* witness);

// It runs in a loop of one or two functions that calls nothing and makes nothing. Work on one
// rank alone that looks like that (a loop over numbers) can't be told from it.
inline bool TurnsInCircles(const Witness& witness) {
  constexpr uint64_t kLooksLeast = 6;
  constexpr uint64_t kPlacesMost = 2;
  return witness.looks >= kLooksLeast && witness.places <= kPlacesMost &&
         2 * witness.jumps >= witness.looks;
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_WITNESS_H_
