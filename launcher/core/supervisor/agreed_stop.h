#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_AGREED_STOP_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_AGREED_STOP_H_

#include <string>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// The workers of this node on their way to the step at which all ranks stop, once that is agreed
// (R14): half of what the deadline leaves is for reaching it, the rest for saving there.
//
//   open ─Commit─► reaching ─kLook: who isn't there is stopped─► saving ─► kTimeIsOver
//                     │ Hasten: who isn't just behind, either      ▲
//                     └────────────────────────────────────────────┘
//
// Of one generation; pure; one thread.
class AgreedStop {
 public:
  enum class Due {
    kNothing,
    kLook,        // are all at the step?
    kTimeIsOver,  // stop them, wherever they are
  };

  // A generation begins.
  void Reset() { *this = AgreedStop(); }
  // The step holds for all; their nodes are there for `within` from now. Requires: not committed().
  void Commit(Instant now, absl::Duration within);
  // Something failed: whoever is not at the step soon won't get there; who saves there is spared.
  // Requires: committed().
  void Hasten(Instant now);
  // Only while the workers run.
  Due OnTimer(Instant now);
  // When OnTimer is wanted, while the workers run; infinite = not at all.
  Instant Deadline() const;

  bool committed() const { return committed_; }

  // What doesn't hold of the fields below; "" = all of it does.
  std::string BrokenInvariant() const;

 private:
  bool committed_ = false;
  Instant reach_end_ = Instant::Infinite();  // finite only if committed_, and until the look
  Instant save_end_ = Instant::Infinite();   // finite only if committed_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_AGREED_STOP_H_
