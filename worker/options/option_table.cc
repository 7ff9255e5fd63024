#include "ddprun/option_table.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/yaml_document.h"

namespace ddprun {
namespace {

constexpr size_t kHelpWidth = 80;
constexpr size_t kFileBytesMax = 65536;
constexpr size_t kPathBytesShown = 80;

template <typename Number>
std::string OutOfRange(absl::string_view kind, OptionRange<Number> range) {
  if (range.max == std::numeric_limits<Number>::max()) {
    return absl::StrCat("give ", kind, ", at least ", range.min);
  }
  return absl::StrCat("give ", kind, " from ", range.min, " to ", range.max);
}

absl::Status Wrong(absl::string_view where, const std::string& value, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, " ", Quoted(value), ": ", what));
}

std::string WithUnderscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// "lr" of "learning_rate".
std::string Initials(const std::string& name) {
  std::string initials;
  for (const absl::string_view word : absl::StrSplit(name, '_', absl::SkipEmpty())) {
    initials += word[0];
  }
  return initials;
}

absl::StatusOr<std::string> Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file.is_open() || !(text << file.rdbuf())) {
    return Wrong("--config", path, "can't be read; give a file of lines 'option: value'");
  }
  if (text.str().size() > kFileBytesMax) {
    return Wrong("--config", path, "is larger than 64 KiB; give a file of lines 'option: value'");
  }
  return text.str();
}

}  // namespace

void OptionTable::Add(const std::string& name, const std::string& placeholder,
                      const std::string& help, const std::string& default_text,
                      std::function<std::string(const std::string& text)> store) {
  rows_.push_back({.name = name,
                   .group = group_,
                   .placeholder = placeholder,
                   .help = help,
                   .default_text = default_text,
                   .store = std::move(store)});
}

void OptionTable::Text(const std::string& name, const std::string& placeholder, std::string* target,
                       const std::string& help) {
  Add(name, placeholder, help, *target, [target](const std::string& text) {
    *target = text;
    return std::string();
  });
}

void OptionTable::Choice(const std::string& name, const std::vector<std::string>& choices,
                         std::string* target, const std::string& help) {
  Add(name, absl::StrJoin(choices, "|"), help, *target, [=](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      const std::string nearest = NearestWord(text, choices);
      return absl::StrCat("give one of ", absl::StrJoin(choices, ", "),
                          nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"));
    }
    *target = text;
    return std::string();
  });
}

void OptionTable::Integer(const std::string& name, OptionRange<int64_t> range, int64_t* target,
                          const std::string& help) {
  Add(name, "N", help, absl::StrCat(*target), [=](const std::string& text) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < range.min || value > range.max) {
      return OutOfRange("a whole number", range);
    }
    *target = value;
    return std::string();
  });
}

void OptionTable::Real(const std::string& name, OptionRange<double> range, double* target,
                       const std::string& help) {
  Add(name, "X", help, absl::StrCat(*target), [=](const std::string& text) {
    double value = 0;
    if (!absl::SimpleAtod(text, &value) || !(value >= range.min && value <= range.max) ||
        !std::isfinite(value)) {
      return OutOfRange("a number", range);
    }
    *target = value;
    return std::string();
  });
}

void OptionTable::Switch(const std::string& name, bool* target, const std::string& help) {
  Add(name, "", help, *target ? "on" : "off", [target](const std::string& text) {
    return absl::SimpleAtob(text, target) ? std::string() : std::string("give true or false");
  });
}

void OptionTable::Switch(const std::string& name, std::optional<bool>* target,
                         const std::string& help) {
  const std::string own = !target->has_value() ? "" : **target ? "on" : "off";
  Add(name, "", help, own, [target](const std::string& text) {
    bool value = false;
    if (!absl::SimpleAtob(text, &value)) return std::string("give true or false");
    *target = value;
    return std::string();
  });
}

const OptionTable::Row* OptionTable::Find(absl::string_view name) const {
  const auto row =
      std::find_if(rows_.begin(), rows_.end(), [name](const Row& r) { return r.name == name; });
  return row == rows_.end() ? nullptr : &*row;
}

std::string OptionTable::Advice(const std::string& name, absl::string_view prefix) const {
  std::vector<std::string> names;
  for (const Row& row : rows_) names.push_back(row.name);
  std::string nearest = NearestWord(name, names);
  for (const std::string& full : names) {
    if (nearest.empty() && Initials(full) == name) nearest = full;
  }
  return nearest.empty() ? "; --help lists them"
                         : absl::StrCat("; did you mean ", prefix, nearest, "?");
}

absl::Status OptionTable::Store(const Given& given) {
  const std::string problem = given.row->store(given.text);
  if (problem.empty()) return absl::OkStatus();
  return Wrong(given.where, given.text, problem);
}

std::vector<std::pair<std::string, std::string>> OptionTable::Values() const {
  std::vector<std::pair<std::string, std::string>> values;
  values.reserve(rows_.size());
  for (const Row& row : rows_) values.emplace_back(row.name, row.default_text);
  return values;
}

absl::Status OptionTable::CheckDefaults() {
  for (const Row& row : rows_) {
    if (row.is_switch() || row.default_text.empty()) continue;
    DDPRUN_RETURN_IF_ERROR(Store({.row = &row, .where = row.name, .text = row.default_text}));
  }
  return absl::OkStatus();
}

absl::StatusOr<OptionTable::Given> OptionTable::TakeArgument(
    const std::vector<std::string>& arguments, size_t* next) {
  const std::string& token = arguments[(*next)++];
  if (!absl::StartsWith(token, "--")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unexpected argument ", Quoted(token), ": options are --name value; --help lists them"));
  }
  const size_t equals = token.find('=');
  const std::string spelled = token.substr(0, equals);
  const std::string name = WithUnderscores(spelled.substr(2));
  std::optional<std::string> value;
  if (equals != std::string::npos) value = token.substr(equals + 1);
  const Row* row = Find(name);
  if (row == nullptr && absl::StartsWith(name, "no_") && !value.has_value()) {
    row = Find(absl::StripPrefix(name, "no_"));
    if (row != nullptr && !row->is_switch()) row = nullptr;
    value = "false";
  }
  if (row == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown option ", Quoted(spelled), Advice(name, "--")));
  }
  const bool has_next = *next < arguments.size() && !absl::StartsWith(arguments[*next], "--");
  if (!value.has_value() && has_next) value = arguments[(*next)++];
  if (!value.has_value() && !row->is_switch()) {
    return absl::InvalidArgumentError(
        absl::StrCat(spelled, " needs a value (", row->placeholder, ")"));
  }
  return Given{.row = row, .where = spelled, .text = value.value_or("true")};
}

absl::Status OptionTable::ReadFile(const std::string& path) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, Contents(path));
  const std::string file = Shown(path, kPathBytesShown);
  const absl::StatusOr<YamlNode> document = ReadYaml(text);
  if (!document.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", document.status().message()));
  }
  if (document->kind == YamlNode::Kind::kNull) return absl::OkStatus();
  if (document->kind != YamlNode::Kind::kMap) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": must be lines of 'option: value'"));
  }
  for (size_t i = 0; i < document->items.size(); ++i) {
    const std::string name = WithUnderscores(document->keys[i]);
    const YamlNode& value = document->items[i];
    const std::string line = absl::StrCat(file, ":", value.line, ": ");
    const Row* row = Find(name);
    if (name == "config") {
      return absl::InvalidArgumentError(absl::StrCat(line, "config belongs on the command line"));
    }
    if (row == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(line, "unknown option ", Quoted(document->keys[i]), Advice(name, "")));
    }
    if (value.kind == YamlNode::Kind::kNull) continue;  // "batch_size:" says nothing
    if (value.kind != YamlNode::Kind::kScalar) {
      return absl::InvalidArgumentError(
          absl::StrCat(line, name, ": must be one text or number, not a list or mapping"));
    }
    DDPRUN_RETURN_IF_ERROR(Store({.row = row, .where = line + name, .text = value.text}));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> OptionTable::Parse(const std::vector<std::string>& arguments) {
  Group("Files and help");
  Text("config", "FILE", &config_,
       "YAML or JSON with options by name, as in 'batch_size: 32'; the command line wins over it.");
  const auto is_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (std::any_of(arguments.begin(), arguments.end(), is_help)) return true;
  std::vector<Given> all;
  for (size_t next = 0; next < arguments.size();) {
    DDPRUN_ASSIGN_OR_RETURN(all.emplace_back(), TakeArgument(arguments, &next));
    if (all.back().row->name == "config") config_ = all.back().text;
  }
  // The file first, so that its values are checked even if the command line overrides them.
  if (!config_.empty()) DDPRUN_RETURN_IF_ERROR(ReadFile(config_));
  for (const Given& given : all) DDPRUN_RETURN_IF_ERROR(Store(given));
  return false;
}

std::string OptionTable::Help() const {
  const std::string indent(6, ' ');
  std::string text = introduction_;
  std::string group;
  for (const Row& row : rows_) {
    if (row.group != group) {
      group = row.group;
      absl::StrAppend(&text, "\n", group, ":\n");
    }
    absl::StrAppend(&text, "  --", row.name, row.is_switch() ? "" : " ", row.placeholder, "\n");
    const std::string help =
        row.default_text.empty() ? row.help : absl::StrCat(row.help, " [", row.default_text, "]");
    absl::StrAppend(&text, indent,
                    absl::StrJoin(WrapText(help, kHelpWidth - indent.size()), "\n" + indent), "\n");
  }
  return absl::StrCat(text, "  --help\n", indent, "Print this and exit.\n");
}

}  // namespace ddprun
