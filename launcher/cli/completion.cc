#include "launcher/cli/completion.h"

#include "absl/strings/str_cat.h"
#include "launcher/options/errors.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

// The paths in an installation and in a build folder, both beside bin.
constexpr const char* kBash[] = {"share/bash-completion/completions/ddprun", "manual/ddprun.bash"};
constexpr const char* kZsh[] = {"share/zsh/site-functions/_ddprun", "manual/_ddprun"};

}  // namespace

absl::StatusOr<std::string> CompletionScript(const Argument& shell, const Host& host) {
  if (shell.text == "tcsh") {
    return BadValue(shell, "there is no completion for tcsh; give bash or zsh");
  }
  if (shell.text != "bash" && shell.text != "zsh") return BadWord(shell, "give bash or zsh");
  for (const char* place : shell.text == "bash" ? kBash : kZsh) {
    absl::StatusOr<std::string> script =
        host.ReadFile(absl::StrCat(host.ProgramFolder(), "/../", place));
    if (script.ok()) return script;
  }
  return PlanError(absl::StrCat(shell.source, " ", shell.text, ": ", host.ProgramFolder(),
                                "/../share has no completion; it is installed with ddprun, so copy "
                                "the program's share folder too"));
}

}  // namespace ddprun::launcher
