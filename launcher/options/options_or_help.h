#ifndef DDPRUN_LAUNCHER_OPTIONS_OPTIONS_OR_HELP_H_
#define DDPRUN_LAUNCHER_OPTIONS_OPTIONS_OR_HELP_H_

#include <string>

namespace ddprun::launcher {

// A command's options, or the text of --help.
template <typename Options>
struct OptionsOrHelp {
  Options options;
  std::string help;  // "" = the options are valid
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_OPTIONS_OR_HELP_H_
