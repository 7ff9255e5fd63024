#ifndef DDPRUN_LAUNCHER_WARM_CORE_LEARNED_H_
#define DDPRUN_LAUNCHER_WARM_CORE_LEARNED_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// What workers of one script and environment import, as one of them wrote it down, and what of it
// can't be imported ahead. It is kept as lines (launcher/warm/diary.py writes them and parked.py
// reads them):
//
//   signature TEXT      of the installation; another one makes all of it worthless
//   module NAME         is imported, in this order
//   preload NAME        is imported in any case; only in what a parked process reads
//   seen NAME           is there after the imports without having been asked for
//   set NAME=VALUE      the script sets this variable at this place
//   varies NAME         this variable differs between workers, or is set by them differently
//   took NAME MS        the import took so many milliseconds, which stands out
//   refused NAME WHY    a module that can't be imported ahead
//   imports MS          all of them took so many milliseconds when they were made ahead
//   unfit WHY           workers must not be forked from an interpreter that has imported these
//
// The last four are only in what is kept.
struct Learned {
  struct Step {
    enum class Kind { kModule, kSeen, kSet };
    Kind kind = Kind::kModule;
    std::string text;  // NAME, or NAME=VALUE
  };
  struct Refusal {
    std::string module;
    std::string why;
  };
  struct Slow {
    std::string module;
    uint32_t milliseconds = 0;
  };
  std::string signature;
  std::vector<Step> steps;
  std::vector<std::string> varying;
  std::vector<Refusal> refused;
  std::vector<Slow> slow;             // each module once
  uint32_t imports_milliseconds = 0;  // 0 = not known
  std::string unfit;                  // "" = nothing is known against it

  size_t module_count() const;
  // Whether the module, or a package that it is in, was refused: Python imports a package before
  // what is in it.
  bool IsRefused(absl::string_view module) const;
  void SetSlow(absl::string_view module, uint32_t milliseconds);
};

inline constexpr size_t kLearnedBytesMax = 4 << 20;
inline constexpr size_t kLearnedStepsMax = 1 << 16;

// Errors: INVALID_ARGUMENT — a line that is none of these, a name that can't be one, more than the
// bounds; the text says which line.
absl::StatusOr<Learned> ParseLearned(absl::string_view text);

// What two workers have in common: variables that one of them sets otherwise vary.
Learned MergeLearned(Learned one, const Learned& other);

// For the file that is kept: all of it. ParseLearned() reads it again.
std::string LearnedText(const Learned& learned);

// For a parked process: what it should import, also `preload`, and which variables no import may
// read.
std::string ParkedText(const Learned& learned, const std::vector<std::string>& preload,
                       const std::vector<std::string>& varying);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_CORE_LEARNED_H_
