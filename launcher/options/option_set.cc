#include "launcher/options/option_set.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/nearest.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/errors.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kHelpWidth = 80;

// Each option on a line of its own with both spellings, its help below, in 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override { return "\n"; }
  std::string make_group(std::string title, bool,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = absl::StrCat(title, ":\n");
    for (const CLI::Option* option : options) absl::StrAppend(&text, make_option(option, false));
    return text;
  }
  std::string make_option(const CLI::Option* option, bool) const override {
    std::string text =
        absl::StrCat("  ", absl::StrReplaceAll(option->get_name(false, true), {{",", ", "}}));
    if (option->get_items_expected_max() > 0) absl::StrAppend(&text, " ", option->get_type_name());
    const std::string indent(6, ' ');
    return absl::StrCat(
        text, "\n", indent,
        absl::StrJoin(WrapText(option->get_description(), kHelpWidth - indent.size()),
                      "\n" + indent),
        "\n");
  }
};

std::string WithUnderscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// torchrun's name of an option in the environment.
std::string VariableOf(const std::string& long_name) {
  return absl::StrCat("PET_", absl::AsciiStrToUpper(WithUnderscores(long_name)));
}

// "-r,--nproc-per-node" -> "-r,--nproc-per-node,--nproc_per_node".
std::string WithBothSpellings(const std::string& names) {
  const std::string long_name = names.substr(names.find("--") + 2);
  if (!absl::StrContains(long_name, '-')) return names;
  return absl::StrCat(names, ",--", WithUnderscores(long_name));
}

std::string WithDashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool LooksLikeOption(const std::string& token) {
  return token.size() > 1 && token[0] == '-' && !ReadDuration(token).has_value();
}

}  // namespace

OptionSet::OptionSet(const std::string& introduction) : app_(introduction) {
  app_.formatter(std::make_shared<HelpFormatter>());
  app_.set_help_flag();  // none, until Parse() puts it last
}

void OptionSet::AddEntry(CLI::Option* option, Argument* argument, const OptionText& text) {
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->group(group_);
  const std::string environment =
      text.environment.value_or(VariableOf(option->get_lnames().front()));
  option->description(environment.empty() ? text.help
                                          : absl::StrCat(text.help, " [", environment, "]"));
  entries_.push_back(
      {.option = option, .argument = argument, .environment = environment, .shape = text.shape});
}

void OptionSet::AddValue(Argument* target, const OptionText& text) {
  CLI::Option* option = app_.add_option(WithBothSpellings(text.names), target->text);
  option->type_name(text.placeholder);
  AddEntry(option, target, text);
}

void OptionSet::AddFlag(bool* target, const OptionText& text) {
  AddEntry(app_.add_flag(WithBothSpellings(text.names), *target), nullptr, text);
}

void OptionSet::AddFile(Argument* target, const OptionText& text, SettingsReader reader) {
  AddValue(target, text);
  file_option_ = entries_.back().option;
  reader_ = std::move(reader);
}

bool OptionSet::IsFlag(const CLI::Option* option) const {
  return option->get_items_expected_max() == 0;
}

// The name that a typing error of one or two letters makes to `name`; "" = none.
std::string OptionSet::Nearest(const std::string& name) const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.option->get_lnames().front());
  return NearestWord(name, names);
}

absl::Status OptionSet::UnknownOption(const std::string& spelled) const {
  const std::string name =
      WithDashes(spelled.substr(std::min(spelled.find_first_not_of('-'), spelled.size())));
  const std::string best = Nearest(name);
  return UsageError(absl::StrCat("unrecognized arguments: unknown option ", Quoted(spelled),
                                 best.empty() ? "" : absl::StrCat("; did you mean --", best, "?"),
                                 " (see --help)"));
}

// The option with the long name, or the only one whose name begins with it.
absl::StatusOr<const CLI::Option*> OptionSet::FindLong(const std::string& name) const {
  std::vector<const CLI::Option*> candidates;
  std::vector<std::string> candidate_names;
  for (const CLI::Option* option : app_.get_options()) {
    const std::vector<std::string>& names = option->get_lnames();
    if (std::find(names.begin(), names.end(), name) != names.end()) return option;
    const bool matches =
        !name.empty() && std::any_of(names.begin(), names.end(), [&name](const std::string& full) {
          return absl::StartsWith(full, name);
        });
    if (!matches) continue;
    candidates.push_back(option);
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

absl::Status OptionSet::TakeOption(const CLI::Option* option, const std::string& source,
                                   std::optional<std::string> value, Scan* scan) const {
  if (option == app_.get_help_ptr()) {
    scan->help = true;
    scan->help_as_json = value == "json";
    return absl::OkStatus();
  }
  if (IsFlag(option)) {
    const std::optional<bool> on = ReadBoolean(value.value_or("true"));
    if (!on.has_value()) {
      return UsageError(absl::StrCat(source, " ", Quoted(*value), ": give it without a value"));
    }
    value = *on ? "true" : "false";
  } else if (!value.has_value()) {
    const bool is_last = scan->next >= scan->arguments->size();
    if (is_last || LooksLikeOption((*scan->arguments)[scan->next])) {
      return UsageError(absl::StrCat(source, " needs a value (", option->get_type_name(), ")",
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
  DDPRUN_ASSIGN_OR_RETURN(const CLI::Option* option, FindLong(spelled.substr(2)));
  std::optional<std::string> value;
  if (equals != std::string::npos) value = token.substr(equals + 1);
  return TakeOption(option, spelled, std::move(value), scan);
}

// "-m", "-r3", "-r=3", "-mr3": letters are flags until one takes a value.
absl::Status OptionSet::ScanShort(const std::string& token, Scan* scan) const {
  for (size_t i = 1; i < token.size(); ++i) {
    const std::string spelled = absl::StrCat("-", token.substr(i, 1));
    const CLI::Option* option = app_.get_option_no_throw(spelled);
    if (option == nullptr) return UnknownOption(i == 1 ? token : spelled);
    const bool has_rest = i + 1 < token.size();
    if (!has_rest || IsFlag(option)) {
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
  for (const Entry& entry : entries_) {
    const bool given = std::any_of(scan->given.begin(), scan->given.end(), [&](const Given& other) {
      return other.option == entry.option;
    });
    if (given || entry.environment.empty()) continue;
    std::optional<std::string> value = environment(entry.environment);
    if (!value.has_value()) continue;
    if (IsFlag(entry.option)) {
      const std::optional<bool> on = ReadBoolean(*value);
      if (!on.has_value()) {
        return PlanError(absl::StrCat(entry.environment, " ", Quoted(*value),
                                      ": give 1 or 0, true or false, or unset it"));
      }
      value = *on ? "true" : "false";
    }
    scan->given.push_back(
        {.option = entry.option, .source = entry.environment, .value = *std::move(value)});
  }
  return absl::OkStatus();
}

absl::StatusOr<const OptionSet::Entry*> OptionSet::EntryOf(const Setting& setting) const {
  const std::string name = WithDashes(setting.name);
  for (const Entry& entry : entries_) {
    if (entry.option->get_lnames().front() == name) return &entry;
  }
  const std::string best = WithUnderscores(Nearest(name));
  return UsageError(absl::StrCat(
      setting.where, " is no option of ddprun",
      best.empty() ? "; --help lists them" : absl::StrCat("; did you mean ", best, "?")));
}

absl::Status OptionSet::AddFromFile(Scan* scan) const {
  const auto is_given = [scan](const CLI::Option* option) {
    return std::find_if(scan->given.rbegin(), scan->given.rend(),
                        [option](const Given& other) { return other.option == option; });
  };
  const auto file = is_given(file_option_);
  if (file == scan->given.rend() || file->value.empty()) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Setting> settings,
                          reader_({.text = file->value, .source = file->source}));
  std::vector<const CLI::Option*> seen;
  for (const Setting& setting : settings) {
    DDPRUN_ASSIGN_OR_RETURN(const Entry* entry, EntryOf(setting));
    DDPRUN_ASSIGN_OR_RETURN(std::string text, SettingText(setting, entry->shape));
    if (std::find(seen.begin(), seen.end(), entry->option) != seen.end()) {
      return UsageError(absl::StrCat(setting.where,
                                     ": is there twice, with dashes and with "
                                     "underscores; keep one"));
    }
    seen.push_back(entry->option);
    if (IsFlag(entry->option)) {
      const std::optional<bool> on = ReadBoolean(text);
      if (!on.has_value()) {
        return UsageError(absl::StrCat(setting.where, " ", Quoted(text), ": give true or false"));
      }
      text = *on ? "true" : "false";
    }
    if (is_given(entry->option) != scan->given.rend()) continue;
    scan->given.push_back(
        {.option = entry->option, .source = setting.where, .value = std::move(text)});
  }
  return absl::OkStatus();
}

std::vector<std::pair<std::string, std::string>> OptionSet::GivenOnCommandLine() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const Entry& entry : entries_) {
    const auto last = std::find_if(given_.rbegin(), given_.rend(), [&entry](const Given& given) {
      return given.option == entry.option;
    });
    if (last == given_.rend() || !absl::StartsWith(last->source, "-")) continue;
    result.emplace_back(entry.option->get_lnames().front(), last->value);
  }
  return result;
}

// Hands what was found to CLI11, each value apart from its option so that none is read anew.
absl::Status OptionSet::Store(const Scan& scan) {
  std::vector<std::string> arguments;
  for (const Given& given : scan.given) {
    const std::string name = absl::StrCat("--", given.option->get_lnames().front());
    if (IsFlag(given.option)) {
      arguments.push_back(absl::StrCat(name, "=", given.value));
    } else {
      arguments.push_back(name);
      arguments.push_back(given.value);
    }
    for (Entry& entry : entries_) {
      if (entry.option == given.option && entry.argument != nullptr) {
        entry.argument->source = given.source;
      }
    }
  }
  std::reverse(arguments.begin(), arguments.end());  // App::parse takes them from the back
  try {
    app_.parse(std::move(arguments));
  } catch (const CLI::Error& error) {
    return UsageError(error.what());
  }
  return absl::OkStatus();
}

std::string OptionSet::HelpAsJson() const {
  nlohmann::json groups = nlohmann::json::array();
  for (const std::string& title : app_.get_groups()) {
    nlohmann::json options = nlohmann::json::array();
    for (const CLI::Option* option : app_.get_options(
             [&title](const CLI::Option* each) { return each->get_group() == title; })) {
      const std::vector<std::string> names = absl::StrSplit(option->get_name(false, true), ',');
      options.push_back(
          {{"names", names},
           {"value", IsFlag(option) ? nlohmann::json() : nlohmann::json(option->get_type_name())},
           {"help", option->get_description()}});
    }
    if (!title.empty() && !options.empty()) {
      groups.push_back({{"title", title}, {"options", std::move(options)}});
    }
  }
  const nlohmann::json help = {{"introduction", app_.get_description()},
                               {"groups", std::move(groups)}};
  return absl::StrCat(help.dump(1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

std::string OptionSet::Help() const {
  if (help_as_json_) return HelpAsJson();
  return absl::StrCat(absl::StripTrailingAsciiWhitespace(app_.help()), "\n");
}

absl::StatusOr<ParsedArguments> OptionSet::Parse(const std::vector<std::string>& arguments,
                                                 const EnvironmentLookup& environment) {
  app_.set_help_flag("-h,--help", "Print this and exit.")->group("Help");
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
  if (scan.help) return ParsedArguments{.help = true};
  DDPRUN_RETURN_IF_ERROR(AddFromEnvironment(environment, &scan));
  if (file_option_ != nullptr) DDPRUN_RETURN_IF_ERROR(AddFromFile(&scan));
  DDPRUN_RETURN_IF_ERROR(Store(scan));
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
