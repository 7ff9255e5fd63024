#ifndef DDPRUN_LAUNCHER_CLI_SUGGESTIONS_H_
#define DDPRUN_LAUNCHER_CLI_SUGGESTIONS_H_

#include <string>
#include <vector>

namespace ddprun::launcher {

// What somebody means who writes `word` where a script is expected and none of that name is there:
// "did you mean ddprun status?", for the end of an error; "" = nobody knows.
// Params: commands: ddprun's own.
std::string SuggestCommand(const std::string& word, const std::vector<std::string>& commands);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_SUGGESTIONS_H_
