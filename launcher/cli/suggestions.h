#ifndef DDPRUN_LAUNCHER_CLI_SUGGESTIONS_H_
#define DDPRUN_LAUNCHER_CLI_SUGGESTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"

namespace ddprun::launcher {

// A suggestion if `word` stands where a script is expected, and there is no such file: "did you
// mean ddprun status?", for the end of an error; "" = none. Params: commands: ddprun's own.
std::string SuggestCommand(const std::string& word, const std::vector<std::string>& commands);

// The script that `word` probably means: the same name with a suffix, or nearly the same name in
// the same folder. "" = none.
std::string SuggestScript(const std::string& word, const Host& host);

// The option that has taken the script, the last word, for its value, as in `ddprun
// --nproc_per_node train.py` or `ddprun --nproc_per_node=2train.py`; "" = none.
std::string TakenScript(const std::vector<std::string>& words);

// The output of --print-completion: the completion script that was installed with this program
// (cmake/manual.py writes it).
// Params: shell: bash or zsh.
// Errors: a usage error for another word; a plan error if the script isn't beside the program.
absl::StatusOr<std::string> CompletionScript(const Argument& shell, const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_SUGGESTIONS_H_
