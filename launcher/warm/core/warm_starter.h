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
struct Unpark {};  // end it
struct Keep {};    // keep learned() for jobs to come
struct Forget {};  // what was kept is worthless
struct WarmNote {  // a line for the event log
  std::string event;
  std::vector<std::pair<std::string, std::string>> fields;
};
struct NotifyOnce {  // one line for the user
  std::string text;
  bool unasked = false;  // also for one who hasn't asked for warm starts
};
using WarmEffect = std::variant<Park, Unpark, Keep, Forget, WarmNote, NotifyOnce>;

// Decides for one agent how its workers start: by the process that is parked, or cold. That is an
// interpreter that has imported what workers import; or the workers' own program, which has said
// that it can be started ahead, and has nothing to learn but that (Learned without steps).
//
//                 learned               "ready"
//   kUnlearned ────────────► kLoading ───────────► kReady
//        ▲         "stale"      │ ▲  died (at most kDeathsMax times in a row)  │
//        └──────────────────────┘ └────────────────────────────────────────────┘
//   refused modules are left out, and it is loaded again; too many, or too many deaths: kOff
//   memory is short: it is ended, kShort; it is loaded again when workers have ended
//
// Where nobody has asked for it (`unasked`), no start waits for it longer than a cold one takes:
// what earlier jobs have learned is no reason to import ahead before the first start, and a start
// that would wait longer than imports of its own take has what is loading ended, kHeld: it is
// loaded again once a generation has outlived this one by half, or has lived for kHoldMax. Faults
// that come sooner than imports take so cost one load that is thrown away, not one each. For
// example, with imports of 2,000 ms that begin 3 s after a start: a worker is killed 500 ms after
// they began: it starts cold, and they begin again when the new generation is 5.25 s old; 1,500 ms
// after they began: it waits.
//
// Whatever happens to the parked interpreter, workers start: cold, as if there were none.
// Pure; one thread.
class WarmStarter {
 public:
  enum class State { kUnlearned, kLoading, kReady, kHeld, kShort, kOff };
  // What is parked.
  enum class Kind { kInterpreter, kProgram };

  // Loads that end in refusals, and deaths between two starts, before it gives up.
  static constexpr int kRefusalsMax = 16;
  static constexpr int kRefusalsUnaskedMax = 3;
  static constexpr int kDeathsMax = 3;
  // How long a start may wait for an interpreter that is ready; a fork takes some milliseconds.
  static constexpr absl::Duration kForkPatience = absl::Seconds(5);
  // How long it may wait for one that still imports what workers would import themselves.
  static constexpr absl::Duration kLoadPatience = absl::Seconds(60);
  // A worker that crashes so soon after its fork may owe that to the fork.
  static constexpr absl::Duration kSoon = absl::Seconds(10);
  // One that was started cold after that, and lives so long, has come further, imports included.
  static constexpr absl::Duration kLong = absl::Minutes(1);

  // A generation that has lived so long has imports begin in any case.
  static constexpr absl::Duration kHoldMax = absl::Minutes(1);

  struct Rules {
    uint64_t bytes_max = 0;  // what the parked process may hold of the memory; 0 = no bound
    Kind kind = Kind::kInterpreter;
    bool unasked = false;
    // Imports have only the processor time that workers leave, so that nothing is known of how far
    // they are.
    bool crowded = false;
  };
  WarmStarter() = default;
  explicit WarmStarter(const Rules& rules) : rules_(rules) {}

  // `kept`: what a job before this one has learned, if there was one. `preloads`: modules are named
  // by hand, so that there is something to import ahead in any case, and nothing to learn.
  std::vector<WarmEffect> Begin(Instant now, std::optional<Learned> kept, bool preloads);
  // As Begin(), with an interpreter that was parked before there was this job; `ready`: what it
  // said then ("ready MILLISECONDS KIBIBYTES").
  std::vector<WarmEffect> BeginReady(Instant now, std::optional<Learned> kept,
                                     absl::string_view ready);
  // Another node of the job has kept what its workers have learned. Counts as long as nothing is
  // known here; nothing of an installation that was another one's.
  std::vector<WarmEffect> OnKept(Instant now, Learned kept);
  // A worker has written down what it has imported. Only the first word of a job counts.
  std::vector<WarmEffect> OnLearned(Instant now, Learned learned);
  // The parked process says: "ready MILLISECONDS KIBIBYTES" (that it holds), "refuse MODULE WHY",
  // "took MODULE MILLISECONDS", "stale"; "old": what it has loaded has changed since, so that it
  // ends; "cannot WHY": this program can't be parked after all.
  std::vector<WarmEffect> OnSaid(Instant now, absl::string_view text);
  std::vector<WarmEffect> OnEnded(Instant now, absl::string_view how);
  // What Park wanted could not be started.
  void OnNotParked() { parked_ = false; }
  // What Park wanted isn't the program any more that has said that it can be started ahead, and was
  // not started: who hasn't said so would run.
  std::vector<WarmEffect> OnOtherProgram();
  // There is too little memory for it, or the kernel has to look for some. It goes first.
  std::vector<WarmEffect> OnShort(std::string why);
  // The node's workers have ended, and what they held is free.
  std::vector<WarmEffect> OnEmpty(Instant now);
  // It can't be kept; workers start cold from now on. `tells`: as NotifyOnce::unasked.
  std::vector<WarmEffect> GiveUp(std::string why, bool tells = false);

  // The workers of a generation are about to start.
  std::vector<WarmEffect> OnStart(Instant now);
  // When OnTimer is wanted; infinite: not at all.
  Instant Deadline() const;
  // The deadline is over, and the generation lives.
  std::vector<WarmEffect> OnTimer(Instant now);
  // How long a worker's start may wait for it; zero = it starts cold.
  absl::Duration Patience(Instant now) const;
  void OnStarted(bool parked);
  // The first worker of a generation to end has ended. `warm`: it was forked; `crashed`: in a way
  // that a fork may be the reason of; `lived`: since its start.
  std::vector<WarmEffect> OnFirstEnd(bool warm, bool crashed, absl::Duration lived);
  // Whether workers are to write down what they import.
  bool WantsToLearn() const { return state_ == State::kUnlearned; }

  State state() const { return state_; }
  const Learned& learned() const { return learned_; }
  // Why a worker that starts now starts cold; when one is ready, why it did all the same.
  std::string WhyCold() const;
  // Of the interpreter that is parked; 0 = there is none that is ready.
  uint64_t bytes_held() const { return state_ == State::kReady ? bytes_held_ : 0; }
  absl::Duration import_time() const { return import_time_; }  // of the last one that was ready

  // What doesn't hold of the fields below; "" = all of it does.
  std::string BrokenInvariant() const;

 private:
  std::vector<WarmEffect> Load(Instant now);
  std::vector<WarmEffect> Unlearn();
  std::vector<WarmEffect> OnReady(Instant now, absl::string_view rest);
  void End(std::vector<WarmEffect>* effects);
  std::vector<WarmEffect> Unfit(std::string why, bool tells);
  bool is_program() const { return rules_.kind == Kind::kProgram; }

  Rules rules_;
  State state_ = State::kUnlearned;
  Learned learned_;
  Instant loading_since_;        // of kLoading
  Instant started_;              // the newest generation; of OnStart
  absl::Duration hold_;          // from a start to the next load, of kHeld; never above kHoldMax
  bool refusing_ = false;        // it said so since it was started; its end is no death
  bool stale_ = false;           // as above
  bool old_ = false;             // as above
  bool parked_ = false;          // one was asked for, and its end isn't known
  bool leaving_ = false;         // it was ended by us; implies parked_
  bool load_when_gone_ = false;  // implies leaving_
  bool short_told_ = false;      // the user knows of the lack of memory
  bool suspected_ = false;       // a forked worker crashed soon: the next start is a cold one
  std::string why_;              // of kShort, kOff
  std::string stale_signature_;  // of what was of another installation; "" = nothing was
  uint64_t bytes_held_ = 0;      // of kReady
  absl::Duration import_time_;
  int refusals_ = 0;  // loads that ended in some; at most kRefusalsMax
  int deaths_ = 0;    // since the last start that worked; at most kDeathsMax
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_CORE_WARM_STARTER_H_
