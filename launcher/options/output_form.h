#ifndef DDPRUN_LAUNCHER_OPTIONS_OUTPUT_FORM_H_
#define DDPRUN_LAUNCHER_OPTIONS_OUTPUT_FORM_H_

#include <string>

#include "absl/status/statusor.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"

namespace ddprun::launcher {

// How a command that shows something prints it.
enum class OutputForm { kText, kWide, kJson };

// --output and --json.
struct OutputArguments {
  Argument form;
  bool json = false;
};

// Adds -o json|wide, as kubectl has it, and --json, which is the same as -o json.
// Params: wide, json: what the two print, for the help; "" for `wide` = the command has json only.
void DefineOutput(OutputArguments* target, const std::string& wide, const std::string& json,
                  OptionSet* options);

// Errors: usage: another word, or `wide` where the command has none.
absl::StatusOr<OutputForm> ReadOutput(const OutputArguments& arguments, bool has_wide);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_OUTPUT_FORM_H_
