#ifndef DDPRUN_LAUNCHER_WARM_CORE_LEARNED_H_
#define DDPRUN_LAUNCHER_WARM_CORE_LEARNED_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The imports of workers of one script and environment, as one worker recorded them, and which of
// them can't be imported ahead. The text form has one fact a line (launcher/warm/diary.py writes
// it, parked.py reads it):
//
//   signature TEXT      the installation's; with another one, the rest is worthless
//   module NAME         a module that the worker imported, in this order
//   preload NAME        a module to import in any case; only in the fork server's list
//   seen NAME           a module that is loaded after the imports but was not asked for
//   set NAME=VALUE      the script sets this variable at this place
//   varies NAME         this variable differs between workers, or workers set it differently
//   took NAME MS        this import took long: so many milliseconds
//   refused NAME WHY    a module that can't be imported ahead
//   imports MS          how long all imports took when they were made ahead
//   unfit WHY           workers must not be forked from an interpreter with these imports
//
// Only kept files have the last four.
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
  std::string unfit;                  // "" = forks are allowed

  size_t module_count() const;
  // Whether the module, or a package that contains it, was refused: Python imports a package before
  // its modules.
  bool IsRefused(absl::string_view module) const;
  void SetSlow(absl::string_view module, uint32_t milliseconds);
};

inline constexpr size_t kLearnedBytesMax = 4 << 20;
inline constexpr size_t kLearnedStepsMax = 1 << 16;

// Errors: INVALID_ARGUMENT — an unknown line, an invalid name, or more than the bounds; the text
// says which line.
absl::StatusOr<Learned> ParseLearned(absl::string_view text);

// What two workers have in common. Variables that they set differently are added to `varying`.
Learned MergeLearned(Learned one, const Learned& other);

// The text of the kept file: everything. ParseLearned() is the inverse.
std::string LearnedText(const Learned& learned);

// The text for a fork server: what to import, `preload` included, and which variables no import may
// read.
std::string ParkedText(const Learned& learned, const std::vector<std::string>& preload,
                       const std::vector<std::string>& varying);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_CORE_LEARNED_H_
