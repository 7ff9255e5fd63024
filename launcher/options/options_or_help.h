#ifndef DDPRUN_LAUNCHER_OPTIONS_OPTIONS_OR_HELP_H_
#define DDPRUN_LAUNCHER_OPTIONS_OPTIONS_OR_HELP_H_

#include <string>

namespace ddprun::launcher {

// What a command was told, or the text of --help.
template <typename Options>
struct OptionsOrHelp {
  Options options;
  std::string help;  // "" = the options count
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_OPTIONS_OR_HELP_H_
