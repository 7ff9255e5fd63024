#ifndef DDPRUN_LAUNCHER_DAEMON_CORE_SPARE_SHELF_H_
#define DDPRUN_LAUNCHER_DAEMON_CORE_SPARE_SHELF_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// The key of a parked interpreter in the pool: its arguments, variables, folder and limits, by
// name. Only a job with an equal key may have the interpreter.
using SpareFacts = std::map<std::string, std::string>;
// The prefix of names with a secret value: variables aren't shown.
inline constexpr char kSecretFact[] = "variable ";

// The first difference between two keys, for people; "" = none.
std::string Difference(const SpareFacts& parked, const SpareFacts& wanted);

// Effects of the shelf.
struct StartSpare {  // start an interpreter for this kind of job
  uint64_t id = 0;
};
struct EndSpare {
  uint64_t id = 0;
  std::string why;
};
using ShelfEffect = std::variant<StartSpare, EndSpare>;

// An interpreter pool: decides which interpreters a daemon keeps. There is one for each kind of job
// that ran here. It is started when a job of that kind no longer needs the machine for its start,
// and given to the next one. If there are too many, or they hold too much memory, the least
// recently used ends first; so does one that is unused for `idle_max`.
//
//            settled            ready           leased
//   kEmpty ──────────► kLoading ──────► kReady ────────► kEmpty
//     ▲ └─ failed: kBarred, until a job asks again ◄─┘
//
// Pure; one thread.
class SpareShelf {
 public:
  enum class State { kEmpty, kLoading, kReady, kBarred };
  static constexpr size_t kKindsMax = 16;

  // `bytes_max`: the most memory of all interpreters. `idle_max`: how long one may wait; infinite =
  // forever.
  SpareShelf(uint64_t bytes_max, absl::Duration idle_max)
      : bytes_max_(bytes_max), idle_max_(idle_max) {}

  struct Asked {
    uint64_t id = 0;
    bool leased = false;   // the ready interpreter belongs to the job from now on
    std::string why;       // why not; "" = leased
    bool differs = false;  // an interpreter for this script is ready, but with another key
  };
  // A job begins. OnLeft() must follow.
  Asked OnAsked(Instant now, const std::string& name, const SpareFacts& facts);
  // The job has ended: starts the next interpreter, if there is none.
  std::vector<ShelfEffect> OnLeft(Instant now, uint64_t id);
  // The job's workers have started: the same after `pause`.
  std::vector<ShelfEffect> OnSettled(Instant now, uint64_t id, absl::Duration pause);
  std::vector<ShelfEffect> OnReady(Instant now, uint64_t id, uint64_t bytes);
  // The interpreter couldn't be started, or has ended. `why`: for people.
  void OnGone(uint64_t id, const std::string& why);
  // Memory is short.
  std::vector<ShelfEffect> OnShort();
  std::vector<ShelfEffect> OnTime(Instant now);
  Instant NextDeadline() const;

  struct Kind {
    std::string name;
    SpareFacts facts;
    State state = State::kEmpty;
    uint64_t bytes = 0;                      // of kReady
    uint32_t jobs = 0;                       // running jobs of this kind
    Instant used;                            // when a job came or went last, or the wait began
    Instant start_at = Instant::Infinite();  // of kEmpty, kBarred
    std::string why;                         // of kBarred
  };
  const std::map<uint64_t, Kind>& kinds() const { return kinds_; }
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  uint64_t Bytes() const;
  Instant IdleEnd(const Kind& kind) const;
  std::map<uint64_t, Kind>::iterator LeastUsed(bool with_memory);
  void Remove(std::map<uint64_t, Kind>::iterator kind, const std::string& why,
              std::vector<ShelfEffect>* effects);

  const uint64_t bytes_max_;
  const absl::Duration idle_max_;
  std::map<uint64_t, Kind> kinds_;
  uint64_t next_id_ = 1;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_CORE_SPARE_SHELF_H_
