#include "launcher/options/option_set.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

absl::Status Wrong(absl::string_view where, absl::string_view what) {
  return UsageError(absl::StrCat(where, ": ", what));
}

}  // namespace

absl::StatusOr<std::string> ScalarText(absl::string_view where, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) return Wrong(where, "must be one text or number");
  return node.text;
}

absl::StatusOr<std::string> SettingText(const Setting& setting, ValueShape shape) {
  const YamlNode& value = setting.value;
  const bool takes_list = shape == ValueShape::kList || shape == ValueShape::kTexts;
  const bool takes_map = shape == ValueShape::kAssignments || shape == ValueShape::kRanks;
  if (value.kind == YamlNode::Kind::kList ? !takes_list
                                          : value.kind == YamlNode::Kind::kMap && !takes_map) {
    return Wrong(setting.where, "must be one text or number");
  }
  if (value.kind == YamlNode::Kind::kScalar) return value.text;
  std::vector<std::string> parts;
  for (size_t i = 0; i < value.items.size(); ++i) {
    DDPRUN_ASSIGN_OR_RETURN(std::string item, ScalarText(setting.where, value.items[i]));
    if (shape == ValueShape::kTexts) {
      item = absl::StrReplaceAll(item, {{",", ",,"}});
    } else if (absl::StrContains(item, ',')) {
      return Wrong(setting.where, absl::StrCat(Quoted(item), " has a comma, which divides items"));
    }
    if (takes_map) {
      item = absl::StrCat(value.keys[i], shape == ValueShape::kRanks ? ":" : "=", item);
    }
    parts.push_back(std::move(item));
  }
  return absl::StrJoin(parts, ",");
}

namespace {

constexpr size_t kHelpWidth = 80;
constexpr size_t kPrefixMin = 3;  // bytes of a name that may be meant by its beginning

std::string WithUnderscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// torchrun's name of an option in the environment.
std::string VariableOf(const std::string& long_name) {
  return absl::StrCat("PET_", absl::AsciiStrToUpper(WithUnderscores(long_name)));
}

std::string WithDashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool LooksLikeOption(const std::string& token) {
  return token.size() > 1 && token[0] == '-' && !ReadDuration(token).has_value();
}

// "Restarts (times in seconds)" is called "restarts".
std::string NameOfGroup(const std::string& title) {
  return absl::AsciiStrToLower(title.substr(0, title.find(' ')));
}

std::string DefaultOf(const OptionText& text, const Argument& target) {
  if (!text.default_text.empty()) return text.default_text;
  return target.text.empty() ? "none" : target.text;
}

}  // namespace

std::vector<std::string> OptionSet::Option::Spellings() const {
  std::vector<std::string> spellings;
  if (!letter.empty()) spellings.push_back(letter);
  for (const std::string& long_name : long_names) {
    spellings.push_back(absl::StrCat("--", long_name));
  }
  return spellings;
}

OptionSet::Option& OptionSet::AddOption(const OptionText& text) {
  Option& option = options_.emplace_back();
  const size_t long_at = text.names.find("--");
  DDPRUN_CHECK(long_at != std::string::npos, "an option without a long name");
  DDPRUN_CHECK(!absl::StrContains(text.names, '_'), "the underscored spelling is added below");
  option.letter = std::string(absl::StripSuffix(text.names.substr(0, long_at), ","));
  for (const std::string& name : {text.names.substr(long_at + 2), text.alias}) {
    if (name.empty()) continue;
    option.long_names.push_back(name);
    if (absl::StrContains(name, '-')) option.long_names.push_back(WithUnderscores(name));
  }
  option.group = group_;
  option.environment = text.environment.value_or(VariableOf(option.name()));
  option.help = option.environment.empty()
                    ? text.help
                    : absl::StrCat(text.help, " [",
                                   absl::StrReplaceAll(option.environment, {{",", ", "}}), "]");
  option.shape = text.shape;
  option.alias = text.alias;
  option.in_help = in_help_;
  return option;
}

void OptionSet::AddValue(Argument* target, const OptionText& text) {
  OptionText whole = text;
  absl::StrAppend(&whole.help, whole.help.empty() ? "" : " ", "Default: ", DefaultOf(text, *target),
                  ".");
  Option& option = AddOption(whole);
  option.placeholder = text.placeholder;
  option.argument = target;
}

void OptionSet::AddFlag(bool* target, const OptionText& text) { AddOption(text).flag = target; }

void OptionSet::AddFile(Argument* target, const OptionText& text, SettingsReader reader) {
  AddValue(target, text);
  file_ = &options_.back();
  reader_ = std::move(reader);
}

std::string OptionSet::Nearest(const std::string& name) const {
  std::vector<std::string> names;
  for (const Option& option : options_) {
    if (&option != help_ && &option != help_all_) names.push_back(option.name());
  }
  std::string near = NearestWord(name, names);
  if (!near.empty() || name.size() < kPrefixMin) return near;
  const auto begins = std::find_if(names.begin(), names.end(), [&name](const std::string& full) {
    return absl::StartsWith(full, name);
  });
  return begins == names.end() ? "" : *begins;
}

std::vector<std::string> OptionSet::MistypedVariables(
    const std::vector<std::string>& variables) const {
  std::vector<std::string> known;
  for (const Option& option : options_) {
    for (const absl::string_view name : absl::StrSplit(option.environment, ',')) {
      known.emplace_back(name);
    }
  }
  std::vector<std::string> lines;
  for (const std::string& variable : variables) {
    const bool is_known = std::find(known.begin(), known.end(), variable) != known.end();
    if (is_known || !absl::StartsWith(variable, "PET_")) continue;
    const std::string near = NearestWord(variable, known);
    if (near.empty()) continue;
    lines.push_back(
        absl::StrCat(Quoted(variable), " is set, which no option reads; did you mean ", near, "?"));
  }
  return lines;
}

absl::Status OptionSet::UnknownOption(const std::string& spelled) const {
  const std::string name =
      WithDashes(spelled.substr(std::min(spelled.find_first_not_of('-'), spelled.size())));
  const std::string error =
      absl::StrCat("unrecognized arguments: unknown option ", Quoted(spelled));
  if (const auto known = foreign_.find(name); known != foreign_.end()) {
    return UsageError(absl::StrCat(error, "; ", known->second));
  }
  const std::string best = Nearest(name);
  return UsageError(absl::StrCat(error,
                                 best.empty() ? "" : absl::StrCat("; did you mean --", best, "?"),
                                 help_all_ == nullptr ? " (see --help)" : " (see --help-all)"));
}

// The option with the long name, or the only one whose name begins with it.
absl::StatusOr<const OptionSet::Option*> OptionSet::FindLong(const std::string& name) const {
  std::vector<const Option*> candidates;
  std::vector<std::string> candidate_names;
  for (const Option& option : options_) {
    const std::vector<std::string>& names = option.long_names;
    if (std::find(names.begin(), names.end(), name) != names.end()) return &option;
    const bool matches = !name.empty() && &option != help_all_ &&
                         std::any_of(names.begin(), names.end(), [&name](const std::string& full) {
                           return absl::StartsWith(full, name);
                         });
    if (!matches) continue;
    candidates.push_back(&option);
    candidate_names.push_back(absl::StrCat("--", names.front()));
  }
  const std::string spelled = absl::StrCat("--", name);
  if (candidates.empty()) return UnknownOption(spelled);
  if (candidates.size() > 1) {
    return UsageError(absl::StrCat("ambiguous option ", Quoted(spelled), ": it could be ",
                                   absl::StrJoin(candidate_names, ", "), "; write more of it"));
  }
  return candidates.front();
}

// "-r"; nullptr = there is none.
const OptionSet::Option* OptionSet::FindLetter(const std::string& spelled) const {
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const Option& option) { return option.letter == spelled; });
  return found == options_.end() ? nullptr : &*found;
}

absl::Status OptionSet::TakeOption(const Option* option, const std::string& source,
                                   std::optional<std::string> value, Scan* scan) const {
  if (option == help_ || option == help_all_) {
    scan->help = true;
    scan->help_all = option == help_all_;
    scan->help_as_json = value == "json";
    return absl::OkStatus();
  }
  if (!option->takes_value()) {
    const std::optional<bool> on = ReadBoolean(value.value_or("true"));
    if (!on.has_value()) {
      return UsageError(absl::StrCat(source, " ", Quoted(*value), ": give it without a value"));
    }
    value = *on ? "true" : "false";
  } else if (!value.has_value()) {
    const bool is_last = scan->next >= scan->arguments->size();
    if (is_last || LooksLikeOption((*scan->arguments)[scan->next])) {
      return UsageError(absl::StrCat(source, " needs a value (", option->placeholder, ")",
                                     is_last ? ""
                                             : absl::StrCat("; one that begins with '-' is "
                                                            "given as ",
                                                            source, "=VALUE")));
    }
    value = (*scan->arguments)[scan->next++];
  }
  scan->given.push_back({.option = option, .source = source, .value = *std::move(value)});
  return absl::OkStatus();
}

absl::Status OptionSet::ScanLong(const std::string& token, Scan* scan) const {
  const size_t equals = token.find('=');
  const std::string spelled = token.substr(0, equals);
  DDPRUN_ASSIGN_OR_RETURN(const Option* option, FindLong(spelled.substr(2)));
  std::optional<std::string> value;
  if (equals != std::string::npos) value = token.substr(equals + 1);
  return TakeOption(option, spelled, std::move(value), scan);
}

// "-m", "-r3", "-r=3", "-mr3": letters are flags until one takes a value.
absl::Status OptionSet::ScanShort(const std::string& token, Scan* scan) const {
  for (size_t i = 1; i < token.size(); ++i) {
    const std::string spelled = absl::StrCat("-", token.substr(i, 1));
    const Option* option = FindLetter(spelled);
    if (option == nullptr) return UnknownOption(i == 1 ? token : spelled);
    const bool has_rest = i + 1 < token.size();
    if (!has_rest || !option->takes_value()) {
      if (has_rest && token[i + 1] == '=') {
        return UsageError(
            absl::StrCat(spelled, " takes no value; it was given as ", Quoted(token)));
      }
      DDPRUN_RETURN_IF_ERROR(TakeOption(option, spelled, std::nullopt, scan));
      continue;
    }
    const size_t value_at = token[i + 1] == '=' ? i + 2 : i + 1;
    return TakeOption(option, spelled, token.substr(value_at), scan);
  }
  return absl::OkStatus();
}

absl::Status OptionSet::AddFromEnvironment(const EnvironmentLookup& environment, Scan* scan) const {
  for (const Option& option : options_) {
    const bool given = std::any_of(scan->given.begin(), scan->given.end(),
                                   [&](const Given& other) { return other.option == &option; });
    if (given || option.environment.empty()) continue;
    const std::vector<std::string> variables = absl::StrSplit(option.environment, ',');
    const auto variable =
        std::find_if(variables.begin(), variables.end(),
                     [&](const std::string& name) { return environment(name).has_value(); });
    if (variable == variables.end()) continue;
    std::string value = *environment(*variable);
    if (!option.takes_value()) {
      const std::optional<bool> on = ReadBoolean(value);
      if (!on.has_value()) {
        return PlanError(absl::StrCat(*variable, " ", Quoted(value),
                                      ": give 1 or 0, true or false, or unset it"));
      }
      value = *on ? "true" : "false";
    }
    scan->given.push_back({.option = &option, .source = *variable, .value = std::move(value)});
  }
  return absl::OkStatus();
}

absl::StatusOr<const OptionSet::Option*> OptionSet::OptionOf(const Setting& setting) const {
  const std::string name = WithDashes(setting.name);
  for (const Option& option : options_) {
    if (&option == help_ || &option == help_all_) continue;
    if (option.name() == name || option.alias == name) return &option;
  }
  const std::string best = WithUnderscores(Nearest(name));
  return UsageError(absl::StrCat(
      setting.where, " is no option of ddprun",
      best.empty() ? "; --help-all lists them" : absl::StrCat("; did you mean ", best, "?")));
}

absl::Status OptionSet::AddFromFile(Scan* scan) const {
  const auto file = std::find_if(scan->given.rbegin(), scan->given.rend(),
                                 [this](const Given& given) { return given.option == file_; });
  if (file == scan->given.rend() || file->value.empty()) return absl::OkStatus();
  const Argument path{.text = file->value, .source = file->source};
  const absl::Status added = AddSettings(path, scan);
  if (added.ok() || absl::StartsWith(path.source, "-")) return added;
  // The user may not know that a variable names a file.
  return {added.code(), absl::StrCat(path.source, " ", Quoted(path.text), ": ", added.message())};
}

absl::Status OptionSet::AddSettings(const Argument& file, Scan* scan) const {
  const auto is_given = [scan](const Option* option) {
    return std::find_if(scan->given.rbegin(), scan->given.rend(),
                        [option](const Given& other) { return other.option == option; });
  };
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Setting> settings, reader_(file));
  std::vector<const Option*> seen;
  for (const Setting& setting : settings) {
    DDPRUN_ASSIGN_OR_RETURN(const Option* option, OptionOf(setting));
    DDPRUN_ASSIGN_OR_RETURN(std::string text, SettingText(setting, option->shape));
    if (std::find(seen.begin(), seen.end(), option) != seen.end()) {
      return UsageError(absl::StrCat(setting.where,
                                     ": is there twice, with dashes and with "
                                     "underscores; keep one"));
    }
    seen.push_back(option);
    if (!option->takes_value()) {
      const std::optional<bool> on = ReadBoolean(text);
      if (!on.has_value()) {
        return UsageError(absl::StrCat(setting.where, " ", Quoted(text), ": give true or false"));
      }
      text = *on ? "true" : "false";
    }
    if (is_given(option) != scan->given.rend()) continue;
    scan->given.push_back({.option = option, .source = setting.where, .value = std::move(text)});
  }
  return absl::OkStatus();
}

std::vector<std::pair<std::string, std::string>> OptionSet::GivenOnCommandLine() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const Option& option : options_) {
    const auto last = std::find_if(given_.rbegin(), given_.rend(), [&option](const Given& given) {
      return given.option == &option;
    });
    if (last == given_.rend() || !absl::StartsWith(last->source, "-")) continue;
    result.emplace_back(option.name(), last->value);
  }
  return result;
}

// The titles in the order in which they came; "" is left out.
std::vector<std::pair<std::string, std::vector<const OptionSet::Option*>>> OptionSet::ByGroup()
    const {
  std::vector<std::pair<std::string, std::vector<const Option*>>> groups;
  for (const Option& option : options_) {
    if (option.group.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&option](const auto& other) { return other.first == option.group; });
    if (group == groups.end()) group = groups.insert(group, {option.group, {}});
    group->second.push_back(&option);
  }
  return groups;
}

std::string OptionSet::HelpAsJson() const {
  nlohmann::json groups = nlohmann::json::array();
  for (const auto& [title, options] : ByGroup()) {
    nlohmann::json shown = nlohmann::json::array();
    for (const Option* option : options) {
      shown.push_back({{"names", option->Spellings()},
                       {"value", option->takes_value() ? nlohmann::json(option->placeholder)
                                                       : nlohmann::json()},
                       {"help", option->help}});
    }
    groups.push_back({{"title", title}, {"options", std::move(shown)}});
  }
  const std::string introduction =
      preface_.empty() ? introduction_ : absl::StrCat(introduction_, "\n\n", preface_);
  const nlohmann::json help = {{"introduction", introduction}, {"groups", std::move(groups)}};
  return absl::StrCat(help.dump(1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

// Each option on a line of its own with both spellings, its help below, in 80 columns.
std::string OptionSet::HelpText(const std::string& title,
                                const std::vector<const Option*>& options) {
  const std::string indent(6, ' ');
  std::string text = absl::StrCat(title, ":\n");
  for (const Option* option : options) {
    const std::string names = absl::StrCat(absl::StrJoin(option->Spellings(), ", "),
                                           option->takes_value() ? " " : "", option->placeholder);
    absl::StrAppend(
        &text, "  ", absl::StrJoin(WrapText(names, kHelpWidth - 2), "\n    "), "\n", indent,
        absl::StrJoin(WrapText(option->help, kHelpWidth - indent.size()), "\n" + indent), "\n");
  }
  return text;
}

std::string OptionSet::Help() const {
  if (help_as_json_) return HelpAsJson();
  std::string text = absl::StrCat(introduction_, "\n");
  if (shows_all_ && !preface_.empty()) absl::StrAppend(&text, "\n", preface_);
  for (const auto& [title, options] : ByGroup()) {
    std::vector<const Option*> shown;
    std::copy_if(options.begin(), options.end(), std::back_inserter(shown),
                 [this](const Option* option) { return shows_all_ || option->in_help; });
    if (!shown.empty()) absl::StrAppend(&text, "\n", HelpText(title, shown));
  }
  return text;
}

std::string OptionSet::HelpOn(const std::string& topic) const {
  const size_t begin = topic.find_first_not_of('-');
  const std::string name = WithDashes(begin == std::string::npos ? "" : topic.substr(begin));
  for (const auto& [title, options] : ByGroup()) {
    if (begin == 0 && NameOfGroup(title) == absl::AsciiStrToLower(name)) {
      return HelpText(title, options);
    }
    for (const Option* option : options) {
      if (option->name() == name || option->letter == topic) return HelpText(title, {option});
    }
  }
  return "";
}

std::vector<std::string> OptionSet::GroupNames() const {
  std::vector<std::string> names;
  for (const auto& [title, options] : ByGroup()) names.push_back(NameOfGroup(title));
  return names;
}

absl::StatusOr<ParsedArguments> OptionSet::Parse(const std::vector<std::string>& arguments,
                                                 const EnvironmentLookup& environment) {
  Group("Help");
  const bool has_more = !in_help_;
  help_ = &AddOption({.names = "-h,--help",
                      .help = has_more ? "Print where to begin, and exit." : "Print this and exit.",
                      .environment = ""});
  if (has_more) {
    help_all_ = &AddOption(
        {.names = "--help-all", .help = "Print all options, and exit.", .environment = ""});
  }
  Scan scan{.arguments = &arguments};
  while (scan.next < arguments.size() && !scan.help) {
    const std::string& token = arguments[scan.next];
    const bool is_option = token.size() > 1 && token[0] == '-' && token != "--";
    if (!is_option) break;
    ++scan.next;
    DDPRUN_RETURN_IF_ERROR(absl::StartsWith(token, "--") ? ScanLong(token, &scan)
                                                         : ScanShort(token, &scan));
  }
  help_as_json_ = scan.help_as_json;
  shows_all_ = scan.help_all;
  if (scan.help) return ParsedArguments{.help = true};
  DDPRUN_RETURN_IF_ERROR(AddFromEnvironment(environment, &scan));
  if (file_ != nullptr) DDPRUN_RETURN_IF_ERROR(AddFromFile(&scan));
  for (const Given& given : scan.given) {  // the last one of an option wins
    const Option& option = *given.option;
    if (option.takes_value()) {
      *option.argument = {.text = given.value, .source = given.source};
    } else {
      *option.flag = given.value == "true";
    }
  }
  given_ = std::move(scan.given);

  ParsedArguments parsed;
  parsed.positionals.assign(arguments.begin() + static_cast<ptrdiff_t>(scan.next), arguments.end());
  // Python 3.11's argparse drops one "--": before the script, else the one right after it.
  for (size_t i : {0U, 1U}) {
    if (i >= parsed.positionals.size() || parsed.positionals[i] != "--") continue;
    parsed.positionals.erase(parsed.positionals.begin() + static_cast<ptrdiff_t>(i));
    break;
  }
  return parsed;
}

}  // namespace ddprun::launcher
