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
#include "absl/strings/string_view.h"
#include "base/yaml_document.h"
#include "launcher/core/environment.h"
#include "launcher/options/argument.h"

// Values of options as files have them. Pure; threads: any.
namespace ddprun::launcher {

// How an option's value may be written in a file, besides as the text of the command line.
enum class ValueShape {
  kText,         // only as that text
  kList,         // [a, b] for "a,b"
  kTexts,        // the same, where a comma within an item becomes ",,"
  kAssignments,  // {a: 1, b: 2} for "a=1,b=2"
  kRanks,        // {0: 3, 4-7: 1} for "0:3,4-7:1"
};

// One value of a file.
struct Setting {
  std::string name;   // of the option, with dashes or underscores
  std::string where;  // for messages: "job.yaml:3: nnodes"
  YamlNode value;     // not kNull
};

// The text that an option takes. Errors: usage.
absl::StatusOr<std::string> SettingText(const Setting& setting, ValueShape shape);

// A node that must be one text or number. `where`: as in Setting. Errors: usage.
absl::StatusOr<std::string> ScalarText(absl::string_view where, const YamlNode& node);

// The names and the help of one option.
struct OptionText {
  // Long name with dashes, after an optional short one: "-r,--redirects", "--nproc-per-node". The
  // spelling with underscores is added.
  std::string names;
  std::string placeholder;  // of the value: "N|MIN:MAX"
  std::string help;         // without the default
  // The default in the help; "" = the target's text, or none.
  std::string default_text;
  // The environment variable that is read if the option isn't given: nullopt = PET_<LONG_NAME>
  // (torchrun's rule), "" = none; "FIRST,SECOND" = the first one that is set.
  std::optional<std::string> environment = std::nullopt;
  // How the option's value may be written in a file.
  ValueShape shape = ValueShape::kText;
  std::string alias = "";  // torchrun's long name of it, with dashes; "" = none
};

// The result of parsing besides the options.
struct ParsedArguments {
  bool help = false;  // help is wanted; nothing else was parsed
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
  // `introduction`: the beginning of the help: usage, purpose, examples.
  explicit OptionSet(std::string introduction) : introduction_(std::move(introduction)) {}
  OptionSet(const OptionSet&) = delete;
  OptionSet& operator=(const OptionSet&) = delete;

  // Begins a titled group of the help; "" = options without help.
  void Group(const std::string& title) { group_ = title; }
  // Options that are added from here on are shown only by --help-all (which this call defines),
  // below `preface`, which ends with a newline if it isn't empty.
  void LeaveToHelpAll(const std::string& preface) {
    in_help_ = false;
    preface_ = preface;
  }
  // The targets must outlive the set; their values are the defaults.
  void AddValue(Argument* target, const OptionText& text);
  void AddFlag(bool* target, const OptionText& text);
  // An option that names a file with values for the other options. A value of the file is used if
  // neither the command line nor the environment has one. At most once.
  void AddFile(Argument* target, const OptionText& text, SettingsReader reader);

  // Fills the targets. `arguments` are without the program's name.
  // Errors: usage errors (argument.h), one line each; a plan error if a flag's variable isn't a
  // boolean. To be called once.
  absl::StatusOr<ParsedArguments> Parse(const std::vector<std::string>& arguments,
                                        const EnvironmentLookup& environment);

  // An option of another launcher, with dashes, and the advice what to do here instead, which is
  // part of the error for that option.
  void AddForeign(const std::string& name, const std::string& advice) { foreign_[name] = advice; }

  // The text of --help or --help-all, or after --help=json all of it as JSON: {"introduction",
  // "groups":
  // [{"title", "options": [{"names": [spellings], "value": placeholder or null, "help"}]}]}, for
  // manual pages and completion (cmake/manual.py). Complete once Parse() was called.
  std::string Help() const;
  // The help on one group of options, by the first word of its title, or on one option, by its name
  // with either spelling, with or without dashes before it; "" = neither is of that name.
  std::string HelpOn(const std::string& topic) const;
  // The names of the groups for HelpOn().
  std::vector<std::string> GroupNames() const;
  // The option that differs from `name` by one or two typing errors; "" = none.
  std::string Nearest(const std::string& name) const;

  // Misspelled variables: one line for the user for each PET_* among `variables` that isn't an
  // option's variable but resembles one.
  std::vector<std::string> MistypedVariables(const std::vector<std::string>& variables) const;

  // The long names, with dashes, and values of the options on the command line, in the order of the
  // definitions; flags as "true" and "false". Requires: Parse() was OK.
  std::vector<std::pair<std::string, std::string>> GivenOnCommandLine() const;

 private:
  // Invariant: at most one of `argument` and `flag` is set; --help and --help-all have none.
  struct Option {
    std::string letter;                   // "-r"; "" = none
    std::vector<std::string> long_names;  // without "--"; the one with dashes first
    std::string group;
    std::string placeholder;  // "" = a flag
    std::string help;         // with default and variable
    std::string environment;  // "" = none; of "FIRST,SECOND" the first that is set
    std::string alias;        // "" = none
    ValueShape shape = ValueShape::kText;
    bool in_help = true;  // false = only in --help-all
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
  absl::Status AddSettings(const Argument& file, Scan* scan) const;
  absl::StatusOr<const Option*> OptionOf(const Setting& setting) const;
  const std::string introduction_;
  std::string group_;
  bool in_help_ = true;                         // Option::in_help of options added now
  std::string preface_;                         // of the options that --help leaves out
  std::map<std::string, std::string> foreign_;  // advice by name
  std::deque<Option> options_;                  // addresses stay valid; Parse() adds --help
  const Option* help_ = nullptr;                // once Parse() was called
  const Option* help_all_ = nullptr;            // the same, if there is one
  const Option* file_ = nullptr;                // of AddFile()
  SettingsReader reader_;
  std::vector<Given> given_;  // the options that Parse() has found, in order
  bool shows_all_ = false;
  bool help_as_json_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_OPTION_SET_H_
