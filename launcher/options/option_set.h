#ifndef DDPRUN_LAUNCHER_OPTIONS_OPTION_SET_H_
#define DDPRUN_LAUNCHER_OPTIONS_OPTION_SET_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/core/environment.h"
#include "launcher/options/argument.h"
#include "launcher/options/setting.h"

namespace ddprun::launcher {

// How one option is called and explained.
struct OptionText {
  // Long name with dashes, after an optional short one: "-r,--redirects", "--nproc-per-node". The
  // spelling with underscores is added.
  std::string names;
  std::string placeholder;  // of the value: "N|MIN:MAX"
  std::string help;         // without the default
  // What holds when nobody gives a value, for the help; "" = the target's text, or none.
  std::string default_text;
  // Environment variable that is read when the option isn't given: nullopt = PET_<LONG_NAME>
  // (torchrun's rule), "" = none; of "FIRST,SECOND" the first one that is set.
  std::optional<std::string> environment = std::nullopt;
  // How its value may be written in a file.
  ValueShape shape = ValueShape::kText;
  std::string alias = "";  // torchrun's long name of it, with dashes; "" = none
};

// What remains after the options.
struct ParsedArguments {
  bool help = false;  // nothing else was looked at
  std::vector<std::string> positionals;
};

// Reads the file that an option names.
using SettingsReader = std::function<absl::StatusOr<std::vector<Setting>>(const Argument& path)>;

// The options of one command, with the grammar of Python's argparse as torchrun uses it: both
// spellings, --option=value, -r3, unique prefixes, last one wins, options end at the first
// positional, environment fallbacks.
//
// Threads: one at a time.
class OptionSet {
 public:
  // `introduction`: what the help begins with: usage, purpose, examples.
  explicit OptionSet(std::string introduction) : introduction_(std::move(introduction)) {}
  OptionSet(const OptionSet&) = delete;
  OptionSet& operator=(const OptionSet&) = delete;

  // Begins a titled group of the help; "" = not shown there.
  void Group(const std::string& title) { group_ = title; }
  // Options that are added from here on are shown by --help-all alone, which there is then, below
  // `preface`, which ends with a newline if it isn't empty.
  void LeaveToHelpAll(const std::string& preface) {
    in_help_ = false;
    preface_ = preface;
  }
  // The targets must outlive the set; what they hold is the default.
  void AddValue(Argument* target, const OptionText& text);
  void AddFlag(bool* target, const OptionText& text);
  // An option that names a file with values for the others, which count when neither the command
  // line nor the environment has one. At most once.
  void AddFile(Argument* target, const OptionText& text, SettingsReader reader);

  // Fills the targets. `arguments` are without the program's name.
  // Errors: usage errors (errors.h), one line each; a plan error for a flag whose variable holds no
  // boolean. Requires: called once.
  absl::StatusOr<ParsedArguments> Parse(const std::vector<std::string>& arguments,
                                        const EnvironmentLookup& environment);

  // What other launchers call an option, with dashes, and what to do here instead: part of the
  // error of who writes it.
  void AddForeign(const std::string& name, const std::string& advice) { foreign_[name] = advice; }

  // The text of --help or --help-all, or after --help=json all of it as JSON: {"introduction",
  // "groups":
  // [{"title", "options": [{"names": [spellings], "value": placeholder or null, "help"}]}]}, for
  // manual pages and completion (cmake/manual.py). Complete once Parse() was called.
  std::string Help() const;
  // The help on one group of options, by the first word of its title, or on one option, by its name
  // with either spelling, with or without dashes before it; "" = neither is of that name.
  std::string HelpOn(const std::string& topic) const;
  // What HelpOn() calls the groups.
  std::vector<std::string> GroupNames() const;
  // The option that a typing error of one or two letters makes to `name`; "" = none.
  std::string Nearest(const std::string& name) const;

  // What nobody reads because of a typing error in its name: one line for the user of each PET_*
  // among `variables` that no option has and that is nearly one that an option has.
  std::vector<std::string> MistypedVariables(const std::vector<std::string>& variables) const;

  // The long names, with dashes, and values of what the command line gave, in the order of the
  // definitions: flags as "true" and "false". Requires: Parse() was OK.
  std::vector<std::pair<std::string, std::string>> GivenOnCommandLine() const;

 private:
  // Invariant: at most one of `argument` and `flag` is set; --help and --help-all have none.
  struct Option {
    std::string letter;                   // "-r"; "" = none
    std::vector<std::string> long_names;  // without "--"; the one with dashes first
    std::string group;
    std::string placeholder;  // "" = it takes no value
    std::string help;         // with default and variable
    std::string environment;  // "" = none; of "FIRST,SECOND" the first that is set
    std::string alias;        // "" = none
    ValueShape shape = ValueShape::kText;
    bool in_help = true;  // else in that of --help-all alone
    Argument* argument = nullptr;
    bool* flag = nullptr;

    bool takes_value() const { return argument != nullptr; }
    const std::string& name() const { return long_names.front(); }
    std::vector<std::string> Spellings() const;  // as typed
  };
  // One option as it was given.
  struct Given {
    const Option* option = nullptr;
    std::string source;
    std::string value;  // of flags: "true" or "false"
  };
  // State of reading one command line.
  struct Scan {
    const std::vector<std::string>* arguments = nullptr;
    size_t next = 0;
    std::vector<Given> given;
    bool help = false;
    bool help_all = false;
    bool help_as_json = false;
  };

  Option& AddOption(const OptionText& text);
  std::vector<std::pair<std::string, std::vector<const Option*>>> ByGroup() const;
  std::string HelpAsJson() const;
  static std::string HelpText(const std::string& title, const std::vector<const Option*>& options);
  absl::StatusOr<const Option*> FindLong(const std::string& name) const;
  const Option* FindLetter(const std::string& spelled) const;
  absl::Status UnknownOption(const std::string& spelled) const;
  absl::Status ScanLong(const std::string& token, Scan* scan) const;
  absl::Status ScanShort(const std::string& token, Scan* scan) const;
  absl::Status TakeOption(const Option* option, const std::string& source,
                          std::optional<std::string> value, Scan* scan) const;
  absl::Status AddFromEnvironment(const EnvironmentLookup& environment, Scan* scan) const;
  absl::Status AddFromFile(Scan* scan) const;
  absl::StatusOr<const Option*> OptionOf(const Setting& setting) const;
  const std::string introduction_;
  std::string group_;
  bool in_help_ = true;                         // of the options that are added
  std::string preface_;                         // of those that --help leaves out
  std::map<std::string, std::string> foreign_;  // advice by name
  std::deque<Option> options_;        // stays where it is when more are added; Parse() adds --help
  const Option* help_ = nullptr;      // once Parse() was called
  const Option* help_all_ = nullptr;  // the same, if there is one
  const Option* file_ = nullptr;      // of AddFile()
  SettingsReader reader_;
  std::vector<Given> given_;  // what Parse() has found, in its order
  bool shows_all_ = false;
  bool help_as_json_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_OPTION_SET_H_
