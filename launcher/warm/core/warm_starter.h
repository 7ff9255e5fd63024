#ifndef DDPRUN_LAUNCHER_WARM_CORE_WARM_STARTER_H_
#define DDPRUN_LAUNCHER_WARM_CORE_WARM_STARTER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "launcher/warm/core/learned.h"

namespace ddprun::launcher {

// Matches offers with pids. A worker reports to the agent that its program can be started ahead,
// and the keeper reports the worker's pid; on a busy node the offer may come first. Pure; one
// thread.
class ParkOffers {
 public:
  // A worker of that local rank is to be started. Forgets the worker before it.
  void OnPrepared(uint32_t local_rank);
  // The worker has started. Returns its pid if its offer has come already.
  std::optional<int32_t> OnStarted(uint32_t local_rank, int32_t pid);
  // The worker offers its program. Returns its pid if that is known.
  std::optional<int32_t> OnOffered(uint32_t local_rank);

 private:
  std::map<uint32_t, int32_t> started_;  // the newest of each local rank
  std::set<uint32_t> early_;             // offers without a pid; disjoint from started_
};

// Effects of the starter.
struct Park {};    // start a fork server that imports learned()
struct Unpark {};  // end it
struct Keep {};    // write learned() to the kept file, for later jobs
struct Forget {};  // remove the kept file
struct WarmNote {  // a line for the event log
  std::string event;
  std::vector<std::pair<std::string, std::string>> fields;
};
struct NotifyOnce {  // one line for the user
  std::string text;
  bool unasked = false;  // print it even if the user hasn't asked for warm starts
};
using WarmEffect = std::variant<Park, Unpark, Keep, Forget, WarmNote, NotifyOnce>;

// Decides for one agent whether its workers are forked by the fork server (the parked process) or
// start cold. The server is an interpreter that has imported what workers import, or the workers'
// own program, if a worker has offered it; there is nothing else to learn of a program (Learned
// without steps).
//
//                 learned               "ready"
//   kUnlearned ────────────► kLoading ───────────► kReady
//        ▲         "stale"      │ ▲  died (at most kDeathsMax times in a row)  │
//        └──────────────────────┘ └────────────────────────────────────────────┘
//   a module is refused: loaded again without it; too many refusals or deaths: kOff
//   memory is short: the server is ended, kShort; loaded again when the workers have ended
//
// If the user hasn't asked for warm starts (`unasked`), no start may take longer than a cold one.
// The server isn't loaded before the first start, even if earlier jobs have learned. A start that
// would wait longer than its own imports take ends the load (kHeld). The next load begins when a
// generation has lived half as long again as the one that ended, or for kHoldMax, so faults that
// come faster than imports waste one load, not one each. Example: imports take 2,000 ms and begin
// 3 s after a start. A worker is killed, and so much of the imports is done:
//    500 ms: the new one starts cold; imports begin when its generation is 1.5 x 3.5 = 5.25 s old
//   1500 ms: the new one waits for the rest
//
// Whatever happens to the server, workers start: cold, as if there were none.
// Pure; one thread.
class WarmStarter {
 public:
  enum class State { kUnlearned, kLoading, kReady, kHeld, kShort, kOff };
  // What the fork server is.
  enum class Kind { kInterpreter, kProgram };

  // Loads that end in refusals, and deaths between two starts, before the starter gives up.
  static constexpr int kRefusalsMax = 16;
  static constexpr int kRefusalsUnaskedMax = 3;
  static constexpr int kDeathsMax = 3;
  // How long a start may wait for an interpreter that is ready; a fork takes some milliseconds.
  static constexpr absl::Duration kForkPatience = absl::Seconds(5);
  // How long a start may wait for an interpreter that still imports.
  static constexpr absl::Duration kLoadPatience = absl::Seconds(60);
  // A crash this soon after a fork may be due to the fork.
  static constexpr absl::Duration kSoon = absl::Seconds(10);
  // A worker that was started cold after that and lives this long has got further, imports
  // included.
  static constexpr absl::Duration kLong = absl::Minutes(1);

  // The longest hold: when a generation has lived this long, the next load begins.
  static constexpr absl::Duration kHoldMax = absl::Minutes(1);

  struct Rules {
    uint64_t bytes_max = 0;  // memory that the fork server may hold; 0 = no bound
    Kind kind = Kind::kInterpreter;
    bool unasked = false;
    // Imports get only the processor time that workers leave, so their progress can't be predicted.
    bool crowded = false;
  };
  WarmStarter() = default;
  explicit WarmStarter(const Rules& rules) : rules_(rules) {}

  // `kept`: what an earlier job has learned. `preloads`: the user names modules (--preload), so
  // there is something to import and nothing to learn.
  std::vector<WarmEffect> Begin(Instant now, std::optional<Learned> kept, bool preloads);
  // As Begin(), with an interpreter that was started before this job. `ready`: its text ("ready
  // MILLISECONDS KIBIBYTES").
  std::vector<WarmEffect> BeginReady(Instant now, std::optional<Learned> kept,
                                     absl::string_view ready);
  // Another node of the job has kept what its workers have learned. Ignored once this node has
  // learned by itself, and for an installation that was found to be outdated.
  std::vector<WarmEffect> OnKept(Instant now, Learned kept);
  // The workers have recorded their imports. Only the first record of a job counts.
  std::vector<WarmEffect> OnLearned(Instant now, Learned learned);
  // A text of the fork server: "ready MILLISECONDS KIBIBYTES" (of imports, of memory), "refuse
  // MODULE WHY", "took MODULE MILLISECONDS"; "stale": the installation has changed; "old": files
  // that it has loaded have changed, so it ends; "cannot WHY": it can't be forked after all.
  std::vector<WarmEffect> OnSaid(Instant now, absl::string_view text);
  std::vector<WarmEffect> OnEnded(Instant now, absl::string_view how);
  // The fork server could not be started.
  void OnNotParked() { parked_ = false; }
  // The program isn't the one that a worker has offered any more, so no server was started: a
  // program that can't be started ahead would run.
  std::vector<WarmEffect> OnOtherProgram();
  // Memory is short, or the system is under memory pressure. The fork server goes first.
  std::vector<WarmEffect> OnShort(std::string why);
  // The node's workers have ended, and their memory is free.
  std::vector<WarmEffect> OnEmpty(Instant now);
  // Warm starts are over: workers start cold from now on. The last parameter is
  // NotifyOnce::unasked.
  std::vector<WarmEffect> GiveUp(std::string why, bool tells = false);

  // The workers of a generation are about to start.
  std::vector<WarmEffect> OnStart(Instant now);
  // When OnTimer is wanted; infinite: not at all.
  Instant Deadline() const;
  // The deadline is over, and the node has workers.
  std::vector<WarmEffect> OnTimer(Instant now);
  // How long a worker's start may wait for the fork server; zero = it starts cold.
  absl::Duration Patience(Instant now) const;
  void OnStarted(bool parked);
  // The first worker of a generation to end has ended. `warm`: it was forked; `crashed`: the fork
  // may be the cause; `lived`: since its start.
  std::vector<WarmEffect> OnFirstEnd(bool warm, bool crashed, absl::Duration lived);
  // Whether workers are to write down what they import.
  bool WantsToLearn() const { return state_ == State::kUnlearned; }

  State state() const { return state_; }
  const Learned& learned() const { return learned_; }
  // Why a worker that starts now starts cold; in kReady, why one started cold although a server was
  // ready.
  std::string WhyCold() const;
  // Memory of the fork server; 0 = none is ready.
  uint64_t bytes_held() const { return state_ == State::kReady ? bytes_held_ : 0; }
  absl::Duration import_time() const { return import_time_; }  // of the last one that was ready

  // Which invariant of the fields below is broken; "" = none.
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
  Instant started_;              // when the newest generation started (OnStart)
  absl::Duration hold_;          // of kHeld: from a start to the next load; at most kHoldMax
  bool refusing_ = false;        // the server has refused a module, so its end isn't a death
  bool stale_ = false;           // the server has said "stale", as above
  bool old_ = false;             // the server has said "old", as above
  bool parked_ = false;          // a server was asked for, and its end isn't known
  bool leaving_ = false;         // we have ended the server; implies parked_
  bool load_when_gone_ = false;  // implies leaving_
  bool short_told_ = false;      // the user was notified of the lack of memory
  bool suspected_ = false;       // a forked worker crashed soon: the next start is cold
  std::string why_;              // of kShort, kOff
  std::string stale_signature_;  // of the installation that was found outdated; "" = none was
  uint64_t bytes_held_ = 0;      // of kReady
  absl::Duration import_time_;
  int refusals_ = 0;  // loads that ended in some; at most kRefusalsMax
  int deaths_ = 0;    // since the last start that worked; at most kDeathsMax
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_CORE_WARM_STARTER_H_
