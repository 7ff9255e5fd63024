#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_AGREED_STOP_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_AGREED_STOP_H_

#include <string>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// The time limits of this node's workers once a stop step is agreed (R14): half of the time until
// the deadline for reaching the step, the rest for saving there. Workers that aren't at the step
// when kLook is due are stopped.
//
//   open ─Commit─► reaching ────────── half of the time, kLook ──► saving ─► kTimeIsOver
//                     │ Hasten: 250 ms, for workers just behind,     ▲
//                     └──────── then kLook ──────────────────────────┘
//
// For one generation; pure; one thread.
class AgreedStop {
 public:
  enum class Due {
    kNothing,
    kLook,        // check whether all workers are at the step
    kTimeIsOver,  // stop the workers, wherever they are
  };

  // A generation begins.
  void Reset() { *this = AgreedStop(); }
  // The step is agreed, and the nodes have `within` from now. Requires: not committed().
  void Commit(Instant now, absl::Duration within);
  // Something failed. A worker that isn't at the step soon won't get there, and one that saves
  // there may finish. Requires: committed().
  void Hasten(Instant now);
  // Only while the workers run.
  Due OnTimer(Instant now);
  // When OnTimer is wanted, while the workers run; infinite = not at all.
  Instant Deadline() const;

  bool committed() const { return committed_; }

  // Which invariant of the fields below is broken; "" = none.
  std::string BrokenInvariant() const;

 private:
  bool committed_ = false;
  Instant reach_end_ = Instant::Infinite();  // finite only if committed_, and until the look
  Instant save_end_ = Instant::Infinite();   // finite only if committed_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_AGREED_STOP_H_
