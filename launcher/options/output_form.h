#ifndef DDPRUN_LAUNCHER_OPTIONS_OUTPUT_FORM_H_
#define DDPRUN_LAUNCHER_OPTIONS_OUTPUT_FORM_H_

#include <string>

#include "absl/status/statusor.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"

namespace ddprun::launcher {

// The output format of a command.
enum class OutputForm { kText, kWide, kJson };

// --output and --json.
struct OutputArguments {
  Argument form;
  bool json = false;
};

// Adds -o json|wide, as in kubectl, and --json, which is the same as -o json.
// Params: wide, json: what the two print, for the help; wide "" = the command has only json.
void DefineOutput(OutputArguments* target, const std::string& wide, const std::string& json,
                  OptionSet* options);

// Errors: usage — another word, or `wide` if the command doesn't have it.
absl::StatusOr<OutputForm> ReadOutput(const OutputArguments& arguments, bool has_wide);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_OUTPUT_FORM_H_
