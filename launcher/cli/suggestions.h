#ifndef DDPRUN_LAUNCHER_CLI_SUGGESTIONS_H_
#define DDPRUN_LAUNCHER_CLI_SUGGESTIONS_H_

#include <string>
#include <vector>

#include "launcher/options/host.h"

namespace ddprun::launcher {

// What somebody means who writes `word` where a script is expected and none of that name is there:
// "did you mean ddprun status?", for the end of an error; "" = nobody knows.
// Params: commands: ddprun's own.
std::string SuggestCommand(const std::string& word, const std::vector<std::string>& commands);

// The script that somebody means who writes `word`: one with its suffix, or one of nearly the same
// name in the same folder. "" = there is none.
std::string SuggestScript(const std::string& word, const Host& host);

// Which option has taken the script, the last of all words, for its value, as in
// `ddprun --nproc_per_node train.py` or `ddprun --nproc_per_node=2train.py`; "" = none has.
std::string TakenScript(const std::vector<std::string>& words);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_SUGGESTIONS_H_
