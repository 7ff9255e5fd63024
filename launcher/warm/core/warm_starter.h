#ifndef DDPRUN_LAUNCHER_WARM_CORE_WARM_STARTER_H_
#define DDPRUN_LAUNCHER_WARM_CORE_WARM_STARTER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "launcher/warm/core/learned.h"

namespace ddprun::launcher {

// What the starter wants done.
struct Park {};    // start an interpreter that imports learned()
struct Keep {};    // keep learned() for jobs to come
struct Forget {};  // what was kept is worthless
struct WarmNote {  // a line for the event log
  std::string event;
  std::vector<std::pair<std::string, std::string>> fields;
};
struct TellOnce {  // one line for the user
  std::string text;
};
using WarmEffect = std::variant<Park, Keep, Forget, WarmNote, TellOnce>;

// Decides for one agent how its workers start: by the interpreter that is parked, or cold.
//
//                 learned               "ready"
//   kUnlearned ────────────► kLoading ───────────► kReady
//        ▲         "stale"      │ ▲  died (at most kDeathsMax times in a row)  │
//        └──────────────────────┘ └────────────────────────────────────────────┘
//   refused modules are left out, and it is loaded again; too many, or too many deaths: kOff
//
// Whatever happens to the parked interpreter, workers start: cold, as if there were none.
// Pure; one thread.
class WarmStarter {
 public:
  enum class State { kUnlearned, kLoading, kReady, kOff };

  // Loads that end in refusals, and deaths between two starts, before it gives up.
  static constexpr int kRefusalsMax = 16;
  static constexpr int kDeathsMax = 3;
  // How long a start may wait for an interpreter that is ready; a fork takes some milliseconds.
  static constexpr absl::Duration kForkPatience = absl::Seconds(5);
  // How long it may wait for one that still imports what workers would import themselves.
  static constexpr absl::Duration kLoadPatience = absl::Seconds(60);

  // `kept`: what a job before this one has learned, if there was one. `preloads`: modules are named
  // by hand, so that there is something to import ahead in any case, and nothing to learn.
  std::vector<WarmEffect> Begin(Instant now, std::optional<Learned> kept, bool preloads);
  // A worker has written down what it has imported. Only the first word of a job counts.
  std::vector<WarmEffect> OnLearned(Instant now, Learned learned);
  // The parked interpreter says: "ready MILLISECONDS", "refuse MODULE WHY", "stale".
  std::vector<WarmEffect> OnSaid(Instant now, absl::string_view text);
  std::vector<WarmEffect> OnEnded(Instant now, absl::string_view how);
  // It can't be kept, for instance for lack of memory; workers start cold from now on.
  std::vector<WarmEffect> GiveUp(std::string why);

  // How long a worker's start may wait for it; zero = it starts cold.
  absl::Duration Patience(Instant now) const;
  void OnStarted(bool parked);
  // Whether workers are to write down what they import.
  bool WantsToLearn() const { return state_ == State::kUnlearned; }

  State state() const { return state_; }
  const Learned& learned() const { return learned_; }

  // What doesn't hold of the fields below; "" = all of it does.
  std::string BrokenInvariant() const;

 private:
  std::vector<WarmEffect> Load(Instant now);

  State state_ = State::kUnlearned;
  Learned learned_;
  Instant loading_since_;  // of kLoading
  bool refusing_ = false;  // it said so since it was started; its end is no death
  bool stale_ = false;     // as above
  int refusals_ = 0;       // loads that ended in some; at most kRefusalsMax
  int deaths_ = 0;         // since the last start that worked; at most kDeathsMax
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_CORE_WARM_STARTER_H_
