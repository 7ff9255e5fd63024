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

// What a parked interpreter was started with, by name: its arguments, variables, folder, limits.
// Only a job with the same may have it.
using SpareFacts = std::map<std::string, std::string>;
// Values of names that begin so are not shown: variables may be secrets.
inline constexpr char kSecretFact[] = "variable ";

// The first thing in which two differ, for people; "" = nothing.
std::string Difference(const SpareFacts& parked, const SpareFacts& wanted);

// What the shelf wants done.
struct StartSpare {  // park an interpreter for it
  uint64_t id = 0;
};
struct EndSpare {
  uint64_t id = 0;
  std::string why;
};
using ShelfEffect = std::variant<StartSpare, EndSpare>;

// Decides which interpreters a daemon keeps: one for each kind of job that ran here, parked when
// the job no longer needs the machine for its start, and given to the next job of that kind. Those
// that were not used for longest go first when there are too many, or they hold too much memory;
// what nobody uses goes, too.
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

  // `bytes_max`: what all together may hold. `idle_max`: how long one may wait; infinite = forever.
  SpareShelf(uint64_t bytes_max, absl::Duration idle_max)
      : bytes_max_(bytes_max), idle_max_(idle_max) {}

  struct Asked {
    uint64_t id = 0;
    bool leased = false;   // the one that is ready is the asker's from now on
    std::string why;       // "" = leased
    bool differs = false;  // another one for this script is ready
  };
  // A job begins. OnLeft() must follow.
  Asked OnAsked(Instant now, const std::string& name, const SpareFacts& facts);
  // It has ended: parks the next one, if there is none.
  std::vector<ShelfEffect> OnLeft(Instant now, uint64_t id);
  // Its workers have started: the same after `pause`.
  std::vector<ShelfEffect> OnSettled(Instant now, uint64_t id, absl::Duration pause);
  std::vector<ShelfEffect> OnReady(Instant now, uint64_t id, uint64_t bytes);
  // What was started isn't there (any more). `why`: for people.
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
    uint32_t jobs = 0;                       // that are there
    Instant used;                            // when a job came or went last, or it began to wait
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
