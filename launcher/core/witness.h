#ifndef DDPRUN_LAUNCHER_CORE_WITNESS_H_
#define DDPRUN_LAUNCHER_CORE_WITNESS_H_

#include <cstdint>
#include <string>

namespace ddprun::launcher {

// What a thread of a worker whose steps are counted saw of the training beside it since the last
// step (launcher/marks). None of it is needed, and all of it may be wrong: it is the worker's word.
struct Witness {
  uint64_t collectives = 0;  // begun in torch.distributed's default group, and one; 0 = not known
  uint64_t looks = 0;        // since the last step
  uint64_t places = 0;       // functions that they found it in, and growths of its memory
  uint64_t jumps = 0;        // of them in the jump of a loop
  std::string place;  // for people: where it is in the script, innermost first; "" = not known
};

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
